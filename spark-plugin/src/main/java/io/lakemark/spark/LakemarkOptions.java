package io.lakemark.spark;

import java.io.Serializable;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of a read.
 *
 * @param path a folder, file, glob or Delta table
 * @param store where the marks are, or null for {@code _lakemark/} beside the data
 * @param useIndex whether marks are used at all
 */
record LakemarkOptions(String path, String store, boolean useIndex) implements Serializable {
  static LakemarkOptions of(Map<String, String> properties) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
    String path = options.get("path");
    if (options.containsKey("paths")) {
      throw new LakemarkException.Unsupported(
          "format \"lakemark\" reads one path at a time; use a glob, or union the tables");
    }
    if (path == null || path.isBlank()) {
      throw new LakemarkException.InvalidInput(
          "format \"lakemark\" needs a path: spark.read().format(\"lakemark\").load(path)");
    }
    return new LakemarkOptions(path, options.get("store"), options.getBoolean("use_index", true));
  }
}

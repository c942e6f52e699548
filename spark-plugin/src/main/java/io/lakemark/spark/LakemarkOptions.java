package io.lakemark.spark;

import java.io.Serializable;
import java.nio.file.Path;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of a read.
 *
 * @param path a folder, file, glob or Delta table
 * @param store where the marks are, or null for {@code _lakemark/} beside the data
 * @param useIndex whether marks are used at all
 * @param version the version that is read, or {@link #NEWEST}
 */
record LakemarkOptions(String path, String store, boolean useIndex, long version)
    implements Serializable {
  /** Reads the newest state. */
  static final long NEWEST = -1;

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
    return new LakemarkOptions(
        path,
        options.get("store"),
        options.getBoolean("use_index", true),
        options.containsKey("version") ? parseVersion(options.get("version")) : NEWEST);
  }

  /** The number of a version, as users write it. */
  static long parseVersion(String text) {
    try {
      long version = Long.parseLong(text.strip());
      if (version >= 0) {
        return version;
      }
    } catch (NumberFormatException e) {
      // Said below.
    }
    throw new LakemarkException.InvalidInput(
        "a version is a whole number such as 12, not \"" + text + "\"; see lakemark history");
  }

  /** The same table as another process finds it, whose working folder is another one. */
  LakemarkOptions absolute() {
    return new LakemarkOptions(absolute(path), absolute(store), useIndex, version);
  }

  private static String absolute(String place) {
    boolean isRelative = place != null && !place.contains("://") && !place.startsWith("file:");
    return isRelative ? Path.of(place).toAbsolutePath().toString() : place;
  }

  /** The same table at a version. */
  LakemarkOptions atVersion(long wanted) {
    return new LakemarkOptions(path, store, useIndex, wanted);
  }

  /** The same table with what a query says of its own. */
  LakemarkOptions forQuery(CaseInsensitiveStringMap query) {
    return new LakemarkOptions(path, store, query.getBoolean("use_index", useIndex), version);
  }

  /** The table as plans name it. */
  String description() {
    return "lakemark " + path + (version == NEWEST ? "" : " version " + version);
  }
}

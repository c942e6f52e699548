package io.lakemark.spark.extension;

import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.hadoop.fs.Path;

/** Where the table is that a path of a scan belongs to. */
final class TableRoots {
  private TableRoots() {}

  /**
   * The folders that could be a table's root: the path, the one above its partition folders, and
   * the one that has it as a file.
   *
   * @param path a path of a scan, whatever it is
   * @param isAlone whether the scan has no other; of many, as a catalog names partitions, only the
   *     folder above is looked for
   */
  static Set<Path> of(Path path, boolean isAlone) {
    Set<Path> roots = new LinkedHashSet<>();
    if (isAlone) {
      roots.add(path);
    }
    roots.add(abovePartitions(path));
    if (path.getName().endsWith(".parquet") && path.getParent() != null) {
      roots.add(abovePartitions(path.getParent()));
    }
    return roots;
  }

  private static Path abovePartitions(Path path) {
    Path root = path;
    while (root.getName().contains("=") && root.getParent() != null) {
      root = root.getParent();
    }
    return root;
  }
}

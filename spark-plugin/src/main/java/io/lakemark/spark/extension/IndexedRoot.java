package io.lakemark.spark.extension;

import org.apache.hadoop.fs.Path;

/**
 * A table that has indexes.
 *
 * @param root its folder, as a URL
 * @param store where its indexes are, or null for beside the data
 */
record IndexedRoot(Path root, String store) {
  /** The path as people write it. */
  String text() {
    boolean isLocal = "file".equals(root.toUri().getScheme());
    return isLocal ? root.toUri().getPath() : root.toString();
  }
}

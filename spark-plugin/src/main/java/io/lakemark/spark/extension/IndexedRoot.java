package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection;
import org.apache.hadoop.fs.Path;

/**
 * A table that has indexes.
 *
 * @param root its folder, as a URL
 * @param store where its indexes are, or null for beside the data
 * @param version the version that Delta's reader reads, or {@link RowGroupSelection#NO_VERSION}
 */
record IndexedRoot(Path root, String store, long version) {
  /** A table whose files Spark lists, or a Delta table whatever its version. */
  IndexedRoot(Path root, String store) {
    this(root, store, RowGroupSelection.NO_VERSION);
  }

  /** The same Delta table at a version. */
  IndexedRoot at(long wanted) {
    return new IndexedRoot(root, store, wanted);
  }

  /** The path as people write it. */
  String text() {
    boolean isLocal = "file".equals(root.toUri().getScheme());
    return isLocal ? root.toUri().getPath() : root.toString();
  }
}

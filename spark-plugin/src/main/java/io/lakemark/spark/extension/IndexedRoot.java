package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection;
import io.lakemark.spark.storage.StorageSettings;
import org.apache.hadoop.fs.Path;

/**
 * A table that has indexes.
 *
 * @param root its folder, as a URL
 * @param store where its indexes are, or null for beside the data
 * @param version the version that Delta's reader reads, or {@link RowGroupSelection#NO_VERSION}
 * @param storage how its files are reached
 */
record IndexedRoot(Path root, String store, long version, StorageSettings storage) {
  /** A table whose files Spark lists, or a Delta table whatever its version. */
  IndexedRoot(Path root, String store, StorageSettings storage) {
    this(root, store, RowGroupSelection.NO_VERSION, storage);
  }

  /** The same Delta table at a version. */
  IndexedRoot at(long wanted) {
    return new IndexedRoot(root, store, wanted, storage);
  }

  /** The path as people write it. */
  String text() {
    boolean isLocal = "file".equals(root.toUri().getScheme());
    return isLocal ? root.toUri().getPath() : root.toString();
  }

  /** What the Rust library hears of the table beside its path. */
  String storageJson() {
    return storage.json(text(), store);
  }
}

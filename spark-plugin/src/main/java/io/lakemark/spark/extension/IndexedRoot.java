package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection;
import io.lakemark.spark.storage.StorageSettings;
import java.net.URI;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
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
  /** A path that leads out of the table: a scheme, and the place in the same file system. */
  private static final Pattern OUTSIDE =
      Pattern.compile("[A-Za-z][A-Za-z0-9+.-]*:(/.*)", Pattern.DOTALL);

  /** A table whose files Spark lists, or a Delta table whatever its version. */
  IndexedRoot(Path root, String store, StorageSettings storage) {
    this(root, store, RowGroupSelection.NO_VERSION, storage);
  }

  /** The same Delta table at a version. */
  IndexedRoot at(long wanted) {
    return new IndexedRoot(root, store, wanted, storage);
  }

  /**
   * The URL of a file that the indexes know under this path. A shallow clone of Delta has files of
   * the table that it was made from.
   */
  String file(String path) {
    Matcher outside = OUTSIDE.matcher(path);
    if (!outside.matches()) {
      return root + "/" + path;
    }
    URI url = root.toUri();
    return new Path(url.getScheme(), url.getAuthority(), outside.group(1)).toString();
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

package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection.PrunedFile;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;

/**
 * What a scan need not read of its files.
 *
 * @param files the files of which something may be left out, by their URLs
 * @param rowGroupsTotal row groups of all files whose row groups are known
 * @param rowGroupsSkipped how many of them need not be read
 */
record PrunedFiles(Map<String, PrunedFile> files, long rowGroupsTotal, long rowGroupsSkipped) {
  /**
   * What the indexes say of a file that Spark has listed; nothing if it is not the one they know.
   */
  Optional<PrunedFile> of(FileStatusWithMetadata listed) {
    return of(listed.getPath())
        .filter(
            file ->
                file.size() == listed.getLen() && file.modified() == listed.getModificationTime());
  }

  /** What the indexes say of the file that they know under a path. */
  Optional<PrunedFile> of(Path path) {
    return Optional.ofNullable(files.get(path.toString()));
  }

  @Override
  public String toString() {
    return rowGroupsSkipped + " of " + rowGroupsTotal + " row groups skipped by the index";
  }
}

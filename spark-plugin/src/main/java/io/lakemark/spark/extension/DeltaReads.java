package io.lakemark.spark.extension;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import scala.Option;
import scala.collection.Seq;

/**
 * Reads of Delta tables as Delta plans them, known by the names of its classes: Delta may be there
 * or not, and nothing here is compiled against it.
 *
 * <p>Scans of {@code DELETE}, {@code UPDATE}, {@code MERGE} and {@code OPTIMIZE} over their own
 * table, of change feeds and of streams have other lists of files, and are none of these.
 */
final class DeltaReads {
  private static final String FORMAT = "org.apache.spark.sql.delta.DeltaParquetFileFormat";

  /** The files of a query until Delta has selected them. */
  private static final String UNPINNED = "org.apache.spark.sql.delta.files.TahoeLogFileIndex";

  /** The files of one version that Delta has selected for a query. */
  private static final String PINNED = "org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex";

  private DeltaReads() {}

  /** Whether it is a query of which Delta has selected the files, of a version that it names. */
  static boolean isPinned(HadoopFsRelation read) {
    return isOf(read, PINNED);
  }

  /** Whether it is a query of the newest state of a table, of which no file is selected yet. */
  static boolean isNewest(HadoopFsRelation read) {
    return isOf(read, UNPINNED) && ((Option<?>) said(read, "versionToUse")).isEmpty();
  }

  /** Whether such a query reads all partitions, and not those alone that its path names. */
  static boolean isWhole(HadoopFsRelation read) {
    return ((Seq<?>) said(read, "partitionFilters")).isEmpty();
  }

  /** The folder of the table. */
  static Path root(HadoopFsRelation read) {
    return read.location().rootPaths().head();
  }

  /** The version whose files Delta has selected. */
  static long version(HadoopFsRelation read) {
    return (Long) said(read, "version");
  }

  private static boolean isOf(HadoopFsRelation read, String files) {
    return read.location().getClass().getName().equals(files)
        && read.fileFormat().getClass().getName().equals(FORMAT);
  }

  private static Object said(HadoopFsRelation read, String method) {
    try {
      return read.location().getClass().getMethod(method).invoke(read.location());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this release of Delta does not say its " + method, e);
    }
  }
}

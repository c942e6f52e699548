package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection.PrunedFile;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Spark's Parquet files, of which each split reads the row groups that the indexes leave. Reading
 * is Spark's own, range of bytes by range of bytes.
 */
final class LakemarkParquetFormat extends ParquetFileFormat {
  private static final long serialVersionUID = 1L;

  private static final String OPEN_COST = "spark.sql.files.openCostInBytes";

  private final transient PrunedFiles chosen;

  LakemarkParquetFormat(PrunedFiles chosen) {
    this.chosen = chosen;
  }

  /**
   * A file of which little is left is one split: most of the splits that it would have are empty.
   */
  @Override
  public boolean isSplitable(SparkSession session, Map<String, String> options, Path path) {
    Optional<PrunedFile> known = chosen.of(path);
    boolean isLittle = known.isPresent() && leftBytes(known.get()) <= openCost(session);
    return !isLittle && super.isSplitable(session, options, path);
  }

  private static double leftBytes(PrunedFile file) {
    return (double) file.size() * file.kept().cardinality() / Math.max(file.rowGroups(), 1);
  }

  /** What Spark takes opening a file to cost, in bytes that could be read meanwhile. */
  private static long openCost(SparkSession session) {
    return JavaUtils.byteStringAsBytes(session.conf().get(OPEN_COST));
  }

  @Override
  public Function1<PartitionedFile, Iterator<InternalRow>> buildReaderWithPartitionValues(
      SparkSession session,
      StructType dataSchema,
      StructType partitionSchema,
      StructType requiredSchema,
      Seq<Filter> filters,
      Map<String, String> options,
      Configuration hadoop) {
    Function1<PartitionedFile, Iterator<InternalRow>> reader =
        super.buildReaderWithPartitionValues(
            session, dataSchema, partitionSchema, requiredSchema, filters, options, hadoop);
    return RowGroupReader.of(reader, session.sparkContext(), hadoop, openCost(session));
  }

  @Override
  public String toString() {
    return super.toString() + ", " + chosen;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof LakemarkParquetFormat;
  }

  @Override
  public int hashCode() {
    return LakemarkParquetFormat.class.hashCode();
  }
}

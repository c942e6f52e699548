package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection.PrunedFile;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Parquet files as another format reads them, Spark's own or Delta's, of which each split reads the
 * row groups that the indexes leave. Reading is that of the other format, range of bytes by range
 * of bytes, and so is all else that a scan requests of its format.
 */
final class LakemarkParquetFormat extends ParquetFileFormat {
  private static final long serialVersionUID = 1L;

  private static final String OPEN_COST = "spark.sql.files.openCostInBytes";

  /** What Spark requests readers with, each with seven arguments. */
  private static final Set<String> READERS =
      Set.of("buildReader", "buildReaderWithPartitionValues");

  private static final int ARGUMENTS = 7;

  private final ParquetFileFormat format;
  private final transient PrunedFiles chosen;
  private final boolean areReplaced;

  /**
   * The files of a format.
   *
   * @param areReplaced whether others may put another file into the place of one
   */
  LakemarkParquetFormat(ParquetFileFormat format, PrunedFiles chosen, boolean areReplaced) {
    this.format = format;
    this.chosen = chosen;
    this.areReplaced = areReplaced;
  }

  /**
   * Whether this version of Spark requests readers only as it is done here. Otherwise it would go
   * past the other format, whose rows may be fewer than those of the files.
   */
  static boolean isKnown() {
    return Arrays.stream(FileFormat.class.getMethods())
        .filter(method -> method.getReturnType().equals(Function1.class))
        .filter(method -> !Modifier.isStatic(method.getModifiers()))
        .allMatch(LakemarkParquetFormat::isKnown);
  }

  private static boolean isKnown(Method reader) {
    return READERS.contains(reader.getName()) && reader.getParameterCount() == ARGUMENTS;
  }

  /**
   * A file of which little is left is one split: most of the splits that it would have are empty.
   */
  @Override
  public boolean isSplitable(SparkSession session, Map<String, String> options, Path path) {
    Optional<PrunedFile> known = chosen.of(path);
    boolean isLittle = known.isPresent() && leftBytes(known.get()) <= openCost(session);
    return !isLittle && format.isSplitable(session, options, path);
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
        format.buildReaderWithPartitionValues(
            session, dataSchema, partitionSchema, requiredSchema, filters, options, hadoop);
    return RowGroupReader.of(
        reader, session.sparkContext(), hadoop, openCost(session), areReplaced);
  }

  @Override
  public boolean supportBatch(SparkSession session, StructType schema) {
    return format.supportBatch(session, schema);
  }

  @Override
  public Option<Seq<String>> vectorTypes(
      StructType requiredSchema, StructType partitionSchema, SQLConf conf) {
    return format.vectorTypes(requiredSchema, partitionSchema, conf);
  }

  @Override
  public Seq<StructField> metadataSchemaFields() {
    return format.metadataSchemaFields();
  }

  @Override
  public Map<String, Function1<PartitionedFile, Object>> fileConstantMetadataExtractors() {
    return format.fileConstantMetadataExtractors();
  }

  @Override
  public AttributeReference createFileMetadataCol() {
    return format.createFileMetadataCol();
  }

  @Override
  public String toString() {
    return format + ", " + chosen;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof LakemarkParquetFormat files && format.equals(files.format);
  }

  @Override
  public int hashCode() {
    return format.hashCode();
  }
}

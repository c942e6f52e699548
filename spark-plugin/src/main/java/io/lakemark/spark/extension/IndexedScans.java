package io.lakemark.spark.extension;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Lets planned scans of files that have indexes read less: the same scan, over the same files
 * without those that the indexes rule out.
 *
 * <p>It changes plans that Spark has made, and no logical ones. So the optimizer, the cache and
 * everything else that compares logical plans see the relation that the user named. The strategies
 * of other extensions have made of it what they make: Delta's has added what filters deleted rows.
 */
final class IndexedScans extends Rule<SparkPlan> {
  private static final Logger LOG = LoggerFactory.getLogger(IndexedScans.class);

  private final SparkSession session;
  private final SessionCache memory;
  private final IndexedFiles files;

  IndexedScans(SparkSession session, SessionCache memory) {
    this.session = session;
    this.memory = memory;
    this.files = new IndexedFiles(session, memory);
  }

  @Override
  public SparkPlan apply(SparkPlan plan) {
    return memory.isBroken() || !files.isOn() ? plan : indexed(plan);
  }

  private SparkPlan indexed(SparkPlan plan) {
    if (plan instanceof FileSourceScanExec scan) {
      return indexedScan(scan);
    }
    return plan.mapChildren(
        new AbstractFunction1<SparkPlan, SparkPlan>() {
          @Override
          public SparkPlan apply(SparkPlan child) {
            return indexed(child);
          }
        });
  }

  private SparkPlan indexedScan(FileSourceScanExec scan) {
    try {
      Optional<HadoopFsRelation> less = withLess(scan);
      if (less.isPresent()) {
        return over(scan, less.get());
      }
    } catch (LinkageError e) {
      memory.setBroken();
      LOG.warn("Lakemark's indexes are not used: Spark {} has other classes", session.version(), e);
    } catch (RuntimeException e) {
      if (memory.addWarned(String.valueOf(e.getMessage()))) {
        LOG.warn("Lakemark's indexes are not used for a scan, which goes on without them", e);
      }
    }
    return scan;
  }

  /** What a scan reads, without what the indexes rule out; nothing if they have nothing to say. */
  private Optional<HadoopFsRelation> withLess(FileSourceScanExec scan) {
    HadoopFsRelation read = scan.relation();
    if (isStream(scan)) {
      return Optional.empty();
    }
    // Subclasses, as Delta's, read other rows than the files have.
    if (read.fileFormat().getClass() == ParquetFileFormat.class) {
      return isByName(read) && TestedSpark.PARQUET.allows(session, memory)
          ? files
              .prune(
                  read.location().rootPaths(),
                  ScanFilter.of(read, scan.dataFilters()),
                  CollectionConverters.asJava(read.options()))
              .map(pruned -> inParts(read, pruned, true))
          : Optional.empty();
    }
    if (DeltaReads.isPinned(read) && TestedSpark.DELTA.allows(session, memory)) {
      return files
          .pruneDelta(
              DeltaReads.root(read),
              DeltaReads.version(read),
              ScanFilter.of(read, scan.dataFilters()),
              CollectionConverters.asJava(read.options()))
          .map(pruned -> ofDelta(read, pruned));
    }
    return Optional.empty();
  }

  private static boolean isStream(FileSourceScanExec scan) {
    Option<LogicalPlan> planned = scan.logicalLink();
    return planned.isDefined() && planned.get().isStreaming();
  }

  /** Whether Spark finds columns by their names, and none by numbers of its own. */
  private boolean isByName(HadoopFsRelation read) {
    boolean isById =
        session
            .conf()
            .get("spark.sql.parquet.fieldId.read.enabled", "false")
            .equalsIgnoreCase("true");
    return !isById || !read.dataSchema().json().contains("parquet.field.id");
  }

  /**
   * The files of a version of a Delta table. Those that Delta's reader needs from their first row
   * on are read whole, as are all where this version of Spark requests readers in a way that is not
   * known here.
   */
  private HadoopFsRelation ofDelta(HadoopFsRelation read, PrunedFiles pruned) {
    Path root = DeltaReads.root(read);
    boolean isCut =
        LakemarkParquetFormat.isKnown()
            && read.fileFormat().isSplitable(session, read.options(), root);
    return isCut
        ? inParts(read, pruned, false)
        : over(read, new LakemarkFileIndex(read.location(), pruned, false), read.fileFormat());
  }

  private static HadoopFsRelation inParts(
      HadoopFsRelation read, PrunedFiles pruned, boolean areReplaced) {
    ParquetFileFormat format = (ParquetFileFormat) read.fileFormat();
    return over(
        read,
        new LakemarkFileIndex(read.location(), pruned, true),
        new LakemarkParquetFormat(format, pruned, areReplaced));
  }

  private static HadoopFsRelation over(
      HadoopFsRelation read, LakemarkFileIndex files, FileFormat format) {
    return read.copy(
        files,
        read.partitionSchema(),
        read.dataSchema(),
        read.bucketSpec(),
        format,
        read.options(),
        read.sparkSession());
  }

  /** Versions of Spark differ in what else a scan is made of. */
  private static SparkPlan over(FileSourceScanExec scan, HadoopFsRelation read) {
    List<Object> parts = new ArrayList<>();
    CollectionConverters.asJava(scan.productIterator()).forEachRemaining(parts::add);
    if (!(parts.get(0) instanceof HadoopFsRelation)) {
      throw new IllegalStateException("a scan does not begin with what it reads");
    }
    parts.set(0, read);
    return scan.makeCopy(parts.toArray());
  }
}

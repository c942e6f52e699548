package io.lakemark.spark.extension;

import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.planning.ScanOperation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.FileSourceStrategy$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Tuple4;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Plans scans of Parquet files that have indexes: Spark's own strategy does it, over the same files
 * without those that the indexes rule out.
 *
 * <p>It is a strategy and no rule of the optimizer. So the optimizer, the cache and everything else
 * that compares logical plans sees the relation that the user named.
 */
final class IndexedScanStrategy extends SparkStrategy {
  private static final Logger LOG = LoggerFactory.getLogger(IndexedScanStrategy.class);

  /** Lines of Spark's versions on which the tests ran. */
  private static final Set<String> TESTED = Set.of("4.1", "4.3");

  private final SparkSession session;
  private final SessionCache memory;
  private final IndexedFiles files;

  IndexedScanStrategy(SparkSession session, SessionCache memory) {
    this.session = session;
    this.memory = memory;
    this.files = new IndexedFiles(session, memory);
  }

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    try {
      if (!memory.isBroken()) {
        Optional<LogicalPlan> indexed = withIndexedFiles(plan);
        if (indexed.isPresent()) {
          return FileSourceStrategy$.MODULE$.apply(indexed.get());
        }
      }
    } catch (LinkageError e) {
      memory.setBroken();
      LOG.warn("Lakemark's indexes are not used: Spark {} has other classes", session.version(), e);
    } catch (RuntimeException e) {
      if (memory.addWarned(String.valueOf(e.getMessage()))) {
        LOG.warn("Lakemark's indexes are not used for a scan, which goes on without them", e);
      }
    }
    return none();
  }

  @SuppressWarnings("unchecked")
  private static Seq<SparkPlan> none() {
    return (Seq<SparkPlan>) (Seq<?>) scala.collection.immutable.Nil$.MODULE$;
  }

  /** The same plan over the files that the indexes leave; nothing if they have nothing to say. */
  private Optional<LogicalPlan> withIndexedFiles(LogicalPlan plan) {
    Option<Tuple4<Seq<NamedExpression>, Seq<Expression>, Seq<Expression>, LogicalPlan>> operation =
        ScanOperation$.MODULE$.unapply(plan);
    if (operation.isEmpty()
        || !(operation.get()._4() instanceof LogicalRelation relation)
        || !(relation.relation() instanceof HadoopFsRelation files)
        || !isOurs(relation, files)) {
      return Optional.empty();
    }
    ScanFilter filter = ScanFilter.of(relation, files, operation.get()._3());
    Optional<PrunedFiles> pruned = this.files.prune(files.location().rootPaths(), filter);
    return pruned.map(
        choice -> {
          LogicalRelation over = over(relation, files, choice);
          return replaced(plan, relation, over);
        });
  }

  private boolean isOurs(LogicalRelation relation, HadoopFsRelation files) {
    // Subclasses, as Delta's, read other rows than the files have.
    return files.fileFormat().getClass() == ParquetFileFormat.class
        && !relation.isStreaming()
        && this.files.isOn()
        && isTested();
  }

  private boolean isTested() {
    String version = session.version();
    if (isTested(version)
        || session.conf().get(IndexedFiles.UNTESTED_SPARK, "false").equals("true")) {
      return true;
    }
    if (memory.addWarned(version)) {
      LOG.warn(
          "Lakemark's indexes are not used: this was not tested on Spark {}; {}=true uses them",
          version,
          IndexedFiles.UNTESTED_SPARK);
    }
    return false;
  }

  static boolean isTested(String version) {
    return TESTED.stream().anyMatch(line -> version.startsWith(line + "."));
  }

  private static LogicalRelation over(
      LogicalRelation relation, HadoopFsRelation files, PrunedFiles pruned) {
    HadoopFsRelation over =
        files.copy(
            new LakemarkFileIndex(files.location(), pruned),
            files.partitionSchema(),
            files.dataSchema(),
            files.bucketSpec(),
            new LakemarkParquetFormat(pruned),
            files.options(),
            files.sparkSession());
    return relation.copy(
        over,
        relation.output(),
        relation.catalogTable(),
        relation.isStreaming(),
        relation.stream());
  }

  private static LogicalPlan replaced(LogicalPlan plan, LogicalPlan old, LogicalPlan by) {
    if (plan == old) {
      by.copyTagsFrom(old);
      return by;
    }
    return plan.mapChildren(
        new AbstractFunction1<LogicalPlan, LogicalPlan>() {
          @Override
          public LogicalPlan apply(LogicalPlan child) {
            return replaced(child, old, by);
          }
        });
  }
}

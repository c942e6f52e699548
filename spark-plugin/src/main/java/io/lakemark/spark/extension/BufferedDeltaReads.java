package io.lakemark.spark.extension;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.catalog.LakemarkTable;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Lets queries of a Delta table see the changes that are buffered beside it: Lakemark's own scan
 * reads such a table, in the place of Delta's. What only Delta's reader gives is refused then.
 *
 * <p>It is a rule of the optimizer, since Delta answers some queries from its log before scans are
 * planned. A read of a version has no changes beside it, and stays Delta's.
 *
 * <p>What is buffered is looked up before Delta selects the version that it reads. So changes that
 * are compacted into the table meanwhile are in that version.
 */
final class BufferedDeltaReads extends Rule<LogicalPlan> {
  private static final Logger LOG = LoggerFactory.getLogger(BufferedDeltaReads.class);

  private final SparkSession session;
  private final SessionCache memory;
  private final IndexedFiles files;

  BufferedDeltaReads(SparkSession session, SessionCache memory) {
    this.session = session;
    this.memory = memory;
    this.files = new IndexedFiles(session, memory);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return memory.isBroken() || !files.isOnForDelta() ? plan : merged(plan);
  }

  private LogicalPlan merged(LogicalPlan plan) {
    if (plan instanceof LogicalRelation relation
        && relation.relation() instanceof HadoopFsRelation read) {
      Optional<IndexedRoot> table = buffered(read);
      return table.isPresent() ? merged(relation, read, table.get()) : plan;
    }
    return plan.mapChildren(
        new AbstractFunction1<LogicalPlan, LogicalPlan>() {
          @Override
          public LogicalPlan apply(LogicalPlan child) {
            return merged(child);
          }
        });
  }

  /** The Delta table of which a query reads the newest state, if changes are buffered beside it. */
  private Optional<IndexedRoot> buffered(HadoopFsRelation read) {
    try {
      return DeltaReads.isNewest(read) && TestedSpark.DELTA.allows(session, memory)
          ? files
              .table(DeltaReads.root(read), CollectionConverters.asJava(read.options()))
              .filter(files::hasBuffered)
          : Optional.empty();
    } catch (LakemarkException e) {
      throw e;
    } catch (LinkageError e) {
      memory.setBroken();
      LOG.warn("Lakemark's indexes are not used: Spark {} has other classes", session.version(), e);
    } catch (RuntimeException e) {
      if (memory.addWarned(String.valueOf(e.getMessage()))) {
        LOG.warn("Lakemark's indexes are not used for a table that Delta reads", e);
      }
    }
    return Optional.empty();
  }

  private static LogicalPlan merged(
      LogicalRelation relation, HadoopFsRelation read, IndexedRoot table) {
    if (!DeltaReads.isWhole(read)) {
      throw refused(table, "a partition by its path");
    }
    LakemarkOptions options =
        new LakemarkOptions(
            table.text(), table.store(), true, LakemarkOptions.NEWEST, null, table.storage());
    DataSourceV2Relation merged =
        DataSourceV2Relation.create(LakemarkTable.open(options), Option.empty(), Option.empty());
    List<NamedExpression> columns = new ArrayList<>();
    for (AttributeReference column : CollectionConverters.asJava(relation.output())) {
      columns.add(column(column, merged, table));
    }
    return new Project(CollectionConverters.asScala(columns).toSeq(), merged);
  }

  /** The column as Lakemark reads it, for whoever knows it as Delta's. */
  private static NamedExpression column(
      AttributeReference wanted, DataSourceV2Relation merged, IndexedRoot table) {
    for (AttributeReference column : CollectionConverters.asJava(merged.output())) {
      if (column.name().equals(wanted.name())
          && column.dataType().catalogString().equals(wanted.dataType().catalogString())) {
        return new Alias(
            column,
            wanted.name(),
            wanted.exprId(),
            wanted.qualifier(),
            Option.empty(),
            CollectionConverters.asScala(List.<String>of()).toSeq());
      }
    }
    throw refused(table, "the column " + wanted.name() + " as Delta has it");
  }

  private static LakemarkException refused(IndexedRoot table, String what) {
    return new LakemarkException.Unsupported(
        String.format(
            "%s has buffered changes, and the query reads %s, which Delta's reader gives without"
                + " them: compact them into the table with CALL lm.system.migrate(table => '%s'),"
                + " read the table as lm.`%s`, or set %s=false to read what Delta alone has",
            table.text(), what, table.text(), table.text(), IndexedFiles.USE_INDEX));
  }
}

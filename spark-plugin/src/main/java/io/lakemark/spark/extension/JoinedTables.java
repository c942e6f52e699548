package io.lakemark.spark.extension;

import io.lakemark.spark.read.PlannedQuery;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;

/**
 * Looks which tables are joined, before Spark hands filters to their scans; changes no plan.
 *
 * <p>A scan whose filter the indexes answer takes the filter off Spark. Then Spark sees no reason
 * to hand the keys of the rows to the other side of a join. Of a scan that is joined the filter
 * therefore stays (see {@link io.lakemark.spark.read.LakemarkScanBuilder}). A scan below an
 * aggregate or a limit goes on without, as these are answered for it alone.
 */
final class JoinedTables extends Rule<LogicalPlan> {
  private static final Logger LOG = LoggerFactory.getLogger(JoinedTables.class);

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    try {
      if (SQLConf.get().dynamicPartitionPruningEnabled()) {
        look(plan, false);
      }
    } catch (LinkageError e) {
      LOG.debug("Tables that are joined stay unknown: Spark has other classes", e);
    }
    return plan;
  }

  private static void look(LogicalPlan plan, boolean isJoined) {
    if (isJoined && plan instanceof DataSourceV2Relation relation) {
      PlannedQuery.ofThread().addJoined(relation.table());
    }
    boolean isKept = isJoined && (plan instanceof Project || plan instanceof Filter);
    Iterator<LogicalPlan> children = plan.children().iterator();
    while (children.hasNext()) {
      look(children.next(), isKept || plan instanceof Join);
    }
  }
}

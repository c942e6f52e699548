package io.lakemark.spark.extension;

import io.lakemark.spark.read.LakemarkScan;
import io.lakemark.spark.read.PlannedQuery;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;

/**
 * Looks which tables of a plan are joined, and which scans of its subqueries take the keys of
 * joins, right before Spark plans the scans of the plan; changes no plan.
 *
 * <p>A scan whose filter the indexes answer takes the filter off Spark. Then Spark sees no reason
 * to hand the keys of the rows to the other side of a join. Of a scan that is joined the filter
 * therefore stays (see {@link io.lakemark.spark.read.LakemarkScanBuilder}). A scan below an
 * aggregate or a limit goes on without, as these are answered for it alone.
 */
final class JoinedScans extends Rule<LogicalPlan> {
  private static final Logger LOG = LoggerFactory.getLogger(JoinedScans.class);

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    try {
      if (SQLConf.get().dynamicPartitionPruningEnabled()) {
        PlannedQuery query = PlannedQuery.ofThread();
        if (plan instanceof Subquery subquery && subquery.correlated()) {
          query.addCorrelatedSubquery();
        }
        addJoined(plan, false, query);
        query.beginPlan(withKeys(plan));
      }
    } catch (LinkageError e) {
      LOG.debug("Tables that are joined stay unknown: Spark has other classes", e);
    }
    return plan;
  }

  private static void addJoined(LogicalPlan plan, boolean isJoined, PlannedQuery query) {
    if (isJoined && plan instanceof DataSourceV2Relation relation) {
      query.addJoined(relation.table());
    }
    boolean isKept = isJoined && (plan instanceof Project || plan instanceof Filter);
    Iterator<LogicalPlan> children = plan.children().iterator();
    while (children.hasNext()) {
      addJoined(children.next(), isKept || plan instanceof Join, query);
    }
  }

  /** Scans with keys in the subquery that has most of them, which Spark copies with the others. */
  private static int withKeys(LogicalPlan plan) {
    int most = 0;
    Iterator<LogicalPlan> subqueries = plan.subqueriesAll().iterator();
    while (subqueries.hasNext()) {
      Set<LakemarkScan> scans = Collections.newSetFromMap(new IdentityHashMap<>());
      addWithKeys(subqueries.next(), scans);
      most = Math.max(most, scans.size());
    }
    return most;
  }

  private static void addWithKeys(LogicalPlan plan, Set<LakemarkScan> scans) {
    if (plan instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LakemarkScan scan
        && scan.takesJoinKeys()) {
      scans.add(scan);
    }
    Iterator<LogicalPlan> children = plan.children().iterator();
    while (children.hasNext()) {
      addWithKeys(children.next(), scans);
    }
  }
}

package io.lakemark.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.read.ExplainSource;
import java.util.IdentityHashMap;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.jdk.javaapi.CollectionConverters;

/** What a query reads of indexed tables, for people. Public, because Python calls it. */
public final class LakemarkExplain {
  private final IdentityHashMap<Scan, ObjectNode> found = new IdentityHashMap<>();
  private final ArrayNode scans = Json.list();

  private LakemarkExplain() {}

  /**
   * The scans of a query's plan, in its order, as JSON. Plans the query if it was not planned yet,
   * and runs nothing. Of a query that has run, the JSON says what was read.
   */
  public static String of(QueryExecution query) {
    LakemarkExplain explain = new LakemarkExplain();
    explain.visit(query.optimizedPlan());
    return Json.write(explain.scans);
  }

  private void visit(QueryPlan<?> plan) {
    if (plan instanceof Filter filter
        && filter.child() instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof ExplainSource) {
      addConditions(filter.condition(), add(relation.scan()));
    } else if (plan instanceof DataSourceV2ScanRelation relation) {
      add(relation.scan());
    } else if (plan instanceof BatchScanExec scan) {
      add(scan.scan());
    } else if (plan instanceof AdaptiveSparkPlanExec adaptive) {
      visit(adaptive.executedPlan());
    } else if (plan instanceof QueryStageExec stage) {
      visit(stage.plan());
    } else if (plan instanceof InMemoryRelation cached) {
      visit(cached.cachedPlan());
    }
    CollectionConverters.asJava(plan.children()).forEach(child -> visit((QueryPlan<?>) child));
    CollectionConverters.asJava(plan.subqueries()).forEach(child -> visit((QueryPlan<?>) child));
  }

  private ObjectNode add(Scan scan) {
    if (!(scan instanceof ExplainSource explained)) {
      return null;
    }
    return found.computeIfAbsent(
        scan,
        unseen -> {
          ObjectNode facts = explained.explainJson();
          facts.putArray("filters_left");
          facts.putArray("runtime_columns");
          scans.add(facts);
          return facts;
        });
  }

  /** The conditions that Spark tests above a scan, and those that it will know only later. */
  private static void addConditions(Expression condition, ObjectNode facts) {
    if (condition instanceof And both) {
      addConditions(both.left(), facts);
      addConditions(both.right(), facts);
    } else if (condition instanceof DynamicPruning) {
      CollectionConverters.asJava(condition.references().toSeq())
          .forEach(column -> facts.withArray("runtime_columns").add(column.name()));
    } else {
      facts.withArray("filters_left").add(condition.sql());
    }
  }
}

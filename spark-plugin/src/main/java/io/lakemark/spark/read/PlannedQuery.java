package io.lakemark.spark.read;

import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.connector.catalog.Table;
import scala.Option;

/** What the scans of a query know of each other while Spark plans it. */
public final class PlannedQuery {
  private static final Map<QueryPlanningTracker, PlannedQuery> KNOWN =
      Collections.synchronizedMap(new WeakHashMap<>());

  /** The scans of the plan that Spark works on; subqueries are planned before what has them. */
  private volatile LargeScans scans = new LargeScans(0);

  private volatile boolean hasCorrelatedSubquery;

  /** One table is one object in a query, whatever it equals. */
  private final Set<Table> joined =
      Collections.synchronizedSet(Collections.newSetFromMap(new IdentityHashMap<>()));

  /** The query that this thread plans. */
  public static PlannedQuery ofThread() {
    Option<QueryPlanningTracker> query = QueryPlanningTracker.get();
    return query.isEmpty()
        ? new PlannedQuery()
        : KNOWN.computeIfAbsent(query.get(), added -> new PlannedQuery());
  }

  /**
   * Begins a plan, whose scans are planned next.
   *
   * @param inSubqueries scans of its subqueries that take the keys of joins
   */
  public void beginPlan(int inSubqueries) {
    scans = new LargeScans(inSubqueries);
  }

  /** The scans of its plan that are planned so far. */
  LargeScans scans() {
    return scans;
  }

  /**
   * Says that a subquery names columns of the query around it. Spark makes it a join when the scans
   * of the subquery are planned, and adds tests for NULL then. So scans that have such tests are
   * not equal though they read the same; without them they are, and Spark runs equal parts once.
   */
  public void addCorrelatedSubquery() {
    hasCorrelatedSubquery = true;
  }

  /** Adds a table whose rows go straight into a join. */
  public void addJoined(Table table) {
    joined.add(table);
  }

  /** What is known of joins over a table by now. */
  public JoinContext joins(Table table) {
    if (!joined.contains(table)) {
      return JoinContext.NOT_JOINED;
    }
    return hasCorrelatedSubquery ? JoinContext.JOINED_IN_CORRELATED_QUERY : JoinContext.JOINED;
  }
}

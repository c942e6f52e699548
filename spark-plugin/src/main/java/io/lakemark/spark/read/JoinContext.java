package io.lakemark.spark.read;

/** What the plan around a scan says of joins, by which filters stay with Spark or do not. */
public enum JoinContext {
  /** No join takes the rows as they are read. */
  NOT_JOINED,

  /** The rows go straight into a join, whose other side may get the keys of few rows. */
  JOINED,

  /** The same, in a query one of whose subqueries names columns of the query around it. */
  JOINED_IN_CORRELATED_QUERY;

  /** Whether the rows go straight into a join. */
  boolean isJoined() {
    return this != NOT_JOINED;
  }

  /**
   * Whether tests for NULL stay with Spark unless they leave few rows: Spark adds them to some of
   * the scans that read the same, which would differ by them (see {@link PlannedQuery}).
   */
  boolean leavesNullTests() {
    return this == JOINED_IN_CORRELATED_QUERY;
  }
}

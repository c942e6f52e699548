package io.lakemark.spark.read;

import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.runtime.AbstractFunction0;

class PlannedQueryTest {
  @Test
  void eachQueryHasItsOwn() {
    PlannedQuery one = ofQuery(new QueryPlanningTracker(Option.empty()));
    QueryPlanningTracker tracker = new QueryPlanningTracker(Option.empty());
    assertSame(ofQuery(tracker), ofQuery(tracker));
    assertNotSame(one, ofQuery(tracker));
    assertNotSame(PlannedQuery.ofThread(), PlannedQuery.ofThread());
  }

  private static PlannedQuery ofQuery(QueryPlanningTracker query) {
    return QueryPlanningTracker$.MODULE$.withTracker(
        query,
        new AbstractFunction0<PlannedQuery>() {
          @Override
          public PlannedQuery apply() {
            return PlannedQuery.ofThread();
          }
        });
  }
}

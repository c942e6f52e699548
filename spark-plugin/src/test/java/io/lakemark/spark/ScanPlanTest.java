package io.lakemark.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;

class ScanPlanTest {
  private static final String PLAN =
      """
      {"scan": "S", "splits": [
        {"body": "a", "rows": 10, "bytes": 100},
        {"body": "b", "rows": %s, "bytes": 200},
        {"body": "c", "rows": 10, "bytes": 300}],
       "report": {"row_groups_total": 8, "row_groups_pruned": 5, "rows_certain": 30},
       "pendingRows": 7}""";

  private static List<String> bodies(ScanPlan plan) {
    return plan.splits().stream().map(LakemarkInputPartition::body).toList();
  }

  @Test
  void whatTheNativeSideSaysIsRead() {
    ScanPlan plan = ScanPlan.parse(PLAN.formatted("10"));
    assertEquals("S", plan.scan());
    assertEquals(List.of("a", "b", "c"), bodies(plan));
    assertEquals(OptionalLong.of(30), plan.rows());
    assertEquals(600, plan.bytes());
    assertEquals(8, plan.rowGroupsTotal());
    assertEquals(5, plan.rowGroupsSkipped());
    assertEquals(30, plan.rowsCertain());
    assertEquals(7, plan.rowsPending());
    assertEquals(7, plan.limited(10).rowsPending());
  }

  @Test
  void aLimitKeepsJustEnoughSplits() {
    ScanPlan plan = ScanPlan.parse(PLAN.formatted("10"));
    assertEquals(List.of(), bodies(plan.limited(0)));
    assertEquals(List.of("a"), bodies(plan.limited(10)));
    assertEquals(List.of("a", "b"), bodies(plan.limited(11)));
    assertEquals(List.of("a", "b", "c"), bodies(plan.limited(1000)));
  }

  @Test
  void aSplitOfUnknownLengthCountsForNothing() {
    ScanPlan plan = ScanPlan.parse(PLAN.formatted("null"));
    assertTrue(plan.rows().isEmpty());
    assertEquals(List.of("a", "b", "c"), bodies(plan.limited(11)));
  }
}

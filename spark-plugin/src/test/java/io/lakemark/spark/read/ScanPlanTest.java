package io.lakemark.spark.read;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.stream.Collectors.joining;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakemark.spark.read.LakemarkInputPartition.Input;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

class ScanPlanTest {
  private static final String PLAN =
      """
      {"scan": "S", "splits": [
        {"inputs": [{"body": "a", "attached": 0}], "rows": 10, "bytes": 100},
        {"inputs": [{"body": "b", "attached": 2}, {"body": "c", "attached": 0}],
         "rows": %s, "bytes": 200},
        {"inputs": [{"body": "d", "attached": 1}], "rows": 10, "bytes": 300}],
       "report": {"row_groups_total": 8, "row_groups_pruned": 5, "rows_exact": 30,
         "files_total": 4, "files_pruned": 1, "index_bytes_read": 99, "leaves": [
           {"text": "k = 7", "column": "k", "index": "by_k", "reason": null},
           {"text": "s = 'a'", "column": "s", "index": "by_s", "reason": "file_not_covered"},
           {"text": "f(s)", "column": null, "index": null, "reason": "expression_not_supported"}]},
       "reportText": "what the indexes said",
       "indexedColumns": ["k", "s"],
       "unknown": {"columns": ["extra"], "fields": ["place.street"]},
       "bufferedRows": 7,
       "rowsIndexOnly": 0,
       "coveringIndex": null}""";

  private static ScanPlan parse(String json) {
    return parse(json, new byte[] {7, 8, 9});
  }

  private static ScanPlan parse(String json, byte[] attached) {
    byte[] text = json.getBytes(UTF_8);
    return ScanPlan.parse(
        ByteBuffer.allocate(Integer.BYTES + text.length + attached.length)
            .putInt(text.length)
            .put(text)
            .put(attached)
            .array());
  }

  private static LakemarkScan scan(String filter, StructType columns, ScanPlan plan) {
    PushedDown pushed = new PushedDown("t", List.of(filter), List.of(), -1, "");
    return new LakemarkScan(
        pushed,
        columns,
        columns,
        plan,
        Map.of(),
        new LakemarkScan.JoinKeys(List.of(), Optional.empty(), keys -> Optional.empty()));
  }

  private static List<String> bodies(ScanPlan plan) {
    return plan.splits().stream()
        .map(split -> split.inputs().stream().map(Input::body).collect(joining("+")))
        .toList();
  }

  private static byte[] attachment(ScanPlan plan, int split, int input) {
    return plan.splits().get(split).inputs().get(input).attachment();
  }

  @Test
  void whatTheNativeSideSaysIsRead() {
    ScanPlan plan = parse(PLAN.formatted("10"));
    assertEquals("S", plan.scan());
    assertEquals(List.of("a", "b+c", "d"), bodies(plan));
    assertEquals(OptionalLong.of(30), plan.rows());
    assertEquals(600, plan.bytes());
    assertEquals(8, plan.rowGroupsTotal());
    assertEquals(5, plan.rowGroupsSkipped());
    assertEquals(30, plan.rowsExact());
    assertEquals(7, plan.rowsBuffered());
    assertEquals(Set.of("k", "s"), plan.indexedColumns());
    assertEquals(
        new UnknownColumns(List.of("extra"), List.of("place.street")), plan.limited(10).unknown());
    assertEquals("what the indexes said", plan.reportText());
    assertEquals(7, plan.limited(10).rowsBuffered());
    assertArrayEquals(new byte[0], attachment(plan, 0, 0));
    assertArrayEquals(new byte[] {7, 8}, attachment(plan, 1, 0));
    assertArrayEquals(new byte[0], attachment(plan, 1, 1));
    assertArrayEquals(new byte[] {9}, attachment(plan, 2, 0));
  }

  @Test
  void scansOfTheSameTasksAreEqualWhateverTheyCostToPlan() {
    String text = PLAN.formatted("10");
    StructType columns = new StructType().add("k", "int");
    LakemarkScan scan = scan("k = 7", columns, parse(text));
    String cheaper = text.replace("\"index_bytes_read\": 99", "\"index_bytes_read\": 0");
    LakemarkScan again = scan("k = 7", new StructType().add("k", "int"), parse(cheaper));
    assertEquals(scan, again);
    assertEquals(scan.hashCode(), again.hashCode());
    for (LakemarkScan other :
        List.of(
            scan("k = 8", columns, parse(text)),
            scan("k = 7", columns.add("s", "string"), parse(text)),
            scan("k = 7", columns, parse(text.replace("\"b\"", "\"B\""))),
            scan("k = 7", columns, parse(text.replace("\"S\"", "\"T\""))),
            scan("k = 7", columns, parse(text, new byte[] {7, 8, 0})),
            scan("k = 7", columns, parse(text).limited(10)))) {
      assertNotEquals(scan, other);
    }
  }

  @Test
  void aLineTellsWhatIsReadAndWhy() {
    assertEquals(
        "splits: 3, row groups skipped: 5 of 8, exact rows: 30, buffered rows: 7,"
            + " files skipped: 1 of 4, indexes: [k by by_k, s by by_s (file_not_covered),"
            + " f(s): expression_not_supported], index bytes: 99",
        parse(PLAN.formatted("10")).line());
  }

  @Test
  void rowsOfAnIndexAreNamedWithIt() {
    String covered =
        PLAN.formatted("10")
            .replace("\"rowsIndexOnly\": 0", "\"rowsIndexOnly\": 3")
            .replace("\"coveringIndex\": null", "\"coveringIndex\": \"by_k\"");
    ScanPlan plan = parse(covered).limited(10);
    assertEquals(3, plan.rowsIndexOnly());
    assertEquals("by_k", plan.coveringIndex());
    assertTrue(plan.line().contains(", buffered rows: 7, index-only rows: 3 by by_k, files"));
    assertNull(parse(PLAN.formatted("10")).coveringIndex());
  }

  @Test
  void aLimitKeepsJustEnoughSplits() {
    ScanPlan plan = parse(PLAN.formatted("10"));
    assertEquals(List.of(), bodies(plan.limited(0)));
    assertEquals(List.of("a"), bodies(plan.limited(10)));
    assertEquals(List.of("a", "b+c"), bodies(plan.limited(11)));
    assertEquals(List.of("a", "b+c", "d"), bodies(plan.limited(1000)));
  }

  @Test
  void aSplitOfUnknownLengthCountsForNothing() {
    ScanPlan plan = parse(PLAN.formatted("null"));
    assertTrue(plan.rows().isEmpty());
    assertEquals(List.of("a", "b+c", "d"), bodies(plan.limited(11)));
  }
}

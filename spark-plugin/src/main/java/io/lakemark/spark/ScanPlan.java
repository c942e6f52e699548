package io.lakemark.spark;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;

/**
 * What the native side plans for one scan.
 *
 * @param scan what all tasks share, opaque here
 * @param splits one per task
 * @param rowGroupsTotal row groups of the files that the marks know
 * @param rowGroupsSkipped how many of them no task reads
 * @param rowsCertain rows that are in the answer for sure
 * @param rowsPending rows of the splits that are in no data file yet
 */
record ScanPlan(
    String scan,
    List<LakemarkInputPartition> splits,
    long rowGroupsTotal,
    long rowGroupsSkipped,
    long rowsCertain,
    long rowsPending) {

  /** Reads a plan: the length of its JSON, the JSON, the attachments of its splits. */
  static ScanPlan parse(byte[] plan) {
    int jsonLength = ByteBuffer.wrap(plan).getInt();
    JsonNode root = Json.read(new String(plan, Integer.BYTES, jsonLength, UTF_8));
    List<LakemarkInputPartition> splits = new ArrayList<>();
    int attached = Integer.BYTES + jsonLength;
    for (JsonNode split : root.get("splits")) {
      JsonNode rows = split.get("rows");
      int end = attached + split.get("attached").asInt();
      splits.add(
          new LakemarkInputPartition(
              split.get("body").asText(),
              rows.isNull() ? LakemarkInputPartition.UNKNOWN_ROWS : rows.asLong(),
              split.get("bytes").asLong(),
              Arrays.copyOfRange(plan, attached, end)));
      attached = end;
    }
    JsonNode report = root.get("report");
    return new ScanPlan(
        root.get("scan").asText(),
        List.copyOf(splits),
        report.get("row_groups_total").asLong(),
        report.get("row_groups_pruned").asLong(),
        report.get("rows_certain").asLong(),
        root.get("pendingRows").asLong());
  }

  /**
   * The same plan with only as many splits as a limit needs. Right only if Spark evaluates no
   * filter after the scan.
   */
  ScanPlan limited(int limit) {
    List<LakemarkInputPartition> kept = new ArrayList<>();
    long rows = 0;
    for (LakemarkInputPartition split : splits) {
      if (rows >= limit) {
        break;
      }
      kept.add(split);
      rows += Math.max(split.rows(), 0);
    }
    return new ScanPlan(
        scan, List.copyOf(kept), rowGroupsTotal, rowGroupsSkipped, rowsCertain, rowsPending);
  }

  /** Rows that the tasks give, if the marks know. */
  OptionalLong rows() {
    boolean known = splits.stream().allMatch(s -> s.rows() != LakemarkInputPartition.UNKNOWN_ROWS);
    return known
        ? OptionalLong.of(splits.stream().mapToLong(LakemarkInputPartition::rows).sum())
        : OptionalLong.empty();
  }

  /** Bytes that the tasks read, roughly. */
  long bytes() {
    return splits.stream().mapToLong(LakemarkInputPartition::bytes).sum();
  }
}

package io.lakemark.spark.read;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.read.LakemarkInputPartition.Input;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;

/**
 * What the native side plans for one scan.
 *
 * @param scan what all tasks share, opaque here
 * @param splits one per task
 * @param rowsBuffered rows of the splits that are in no data file yet
 * @param rowsIndexOnly rows of the splits that an index gave with their values, so that no data
 *     file is read for them
 * @param coveringIndex the index that gave them, or null
 * @param indexedColumns those of the columns of which the indexes know something
 * @param unknown what the table has that Spark does not know, if the rows are to be changed
 * @param report what the indexes said and what it cost, with the names that reports have everywhere
 * @param reportText the same for people
 */
record ScanPlan(
    String scan,
    List<LakemarkInputPartition> splits,
    long rowsBuffered,
    long rowsIndexOnly,
    String coveringIndex,
    Set<String> indexedColumns,
    UnknownColumns unknown,
    JsonNode report,
    String reportText) {

  /** Reads a plan: the length of its JSON, the JSON, the attachments of its inputs. */
  static ScanPlan parse(byte[] plan) {
    int jsonLength = ByteBuffer.wrap(plan).getInt();
    JsonNode root = Json.read(new String(plan, Integer.BYTES, jsonLength, UTF_8));
    List<LakemarkInputPartition> splits = new ArrayList<>();
    int attached = Integer.BYTES + jsonLength;
    for (JsonNode split : root.get("splits")) {
      List<Input> inputs = new ArrayList<>();
      for (JsonNode input : split.get("inputs")) {
        int end = attached + input.get("attached").asInt();
        byte[] attachment = Arrays.copyOfRange(plan, attached, end);
        inputs.add(new Input(input.get("body").asText(), attachment));
        attached = end;
      }
      JsonNode rows = split.get("rows");
      splits.add(
          new LakemarkInputPartition(
              List.copyOf(inputs),
              rows.isNull() ? LakemarkInputPartition.UNKNOWN_ROWS : rows.asLong(),
              split.get("bytes").asLong()));
    }
    Set<String> indexed = new LinkedHashSet<>();
    root.get("indexedColumns").forEach(column -> indexed.add(column.asText()));
    return new ScanPlan(
        root.get("scan").asText(),
        List.copyOf(splits),
        root.get("bufferedRows").asLong(),
        root.get("rowsIndexOnly").asLong(),
        root.get("coveringIndex").textValue(),
        indexed,
        UnknownColumns.parse(root.get("unknown")),
        root.get("report"),
        root.get("reportText").asText());
  }

  /** Whether its tasks read the same rows. What it cost to plan them may differ. */
  boolean hasTasksOf(ScanPlan other) {
    return scan.equals(other.scan) && splits.equals(other.splits);
  }

  /** Row groups of the files that the indexes know. */
  long rowGroupsTotal() {
    return report.get("row_groups_total").asLong();
  }

  /** How many of them no task reads. */
  long rowGroupsSkipped() {
    return report.get("row_groups_pruned").asLong();
  }

  /** Rows that are in the answer for sure. */
  long rowsExact() {
    return report.get("rows_exact").asLong();
  }

  /** Bytes of index files that were read for it. */
  long indexBytesRead() {
    return report.get("index_bytes_read").asLong();
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
        scan,
        List.copyOf(kept),
        rowsBuffered,
        rowsIndexOnly,
        coveringIndex,
        indexedColumns,
        unknown,
        report,
        reportText);
  }

  /** Rows that the tasks give, if the indexes know. */
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

  /** Without what tasks get, which may have credentials. */
  @Override
  public String toString() {
    return line();
  }

  /** The plan as a line of Spark's EXPLAIN. */
  String line() {
    StringBuilder line =
        new StringBuilder(
            String.format(
                "splits: %d, row groups skipped: %d of %d, exact rows: %d",
                splits.size(), rowGroupsSkipped(), rowGroupsTotal(), rowsExact()));
    if (rowsBuffered > 0) {
      line.append(", buffered rows: ").append(rowsBuffered);
    }
    if (rowsIndexOnly > 0) {
      line.append(", index-only rows: ").append(rowsIndexOnly).append(" by ").append(coveringIndex);
    }
    line.append(
        String.format(
            ", files skipped: %d of %d",
            report.get("files_pruned").asLong(), report.get("files_total").asLong()));
    List<String> indexes = new ArrayList<>();
    report.get("leaves").forEach(leaf -> indexes.add(source(leaf)));
    if (!indexes.isEmpty()) {
      line.append(", indexes: ").append(indexes).append(", index bytes: ").append(indexBytesRead());
    }
    return line.toString();
  }

  /** What answered a condition, or the code of the reason why nothing did. */
  private static String source(JsonNode leaf) {
    String reason = leaf.get("reason").isNull() ? "" : leaf.get("reason").asText();
    String index = leaf.get("index").isNull() ? "" : leaf.get("index").asText();
    String column =
        leaf.get("column").isNull() ? leaf.get("text").asText() : leaf.get("column").asText();
    if (index.isEmpty()) {
      return column + ": " + reason;
    }
    return column + " by " + index + (reason.isEmpty() ? "" : " (" + reason + ")");
  }
}

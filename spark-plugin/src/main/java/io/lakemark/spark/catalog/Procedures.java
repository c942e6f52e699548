package io.lakemark.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Json;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;

/**
 * The procedures, {@code CALL lm.system.NAME(table => '…', …)}: the verbs of the shell and of
 * Python, with the same arguments. What they answer are reports as rows, whose columns have the
 * names that the fields of the reports have. Walks over links answer with the rows that they find.
 */
public final class Procedures {
  /** The procedure that is a job. */
  static final String BUILD = "build";

  private static final String BUILD_ARGUMENTS = "index STRING, memory BIGINT, threads BIGINT";

  private static final Map<String, LakemarkProcedure.Definition> ALL = new TreeMap<>();

  static {
    define(
        "verify",
        "Derives every index file from the data again and compares.",
        "",
        "name STRING, files_ok BIGINT, damaged ARRAY<STRING>, stale ARRAY<STRING>",
        report ->
            objects(report.get("indexes"), verdict -> withTexts(verdict, "damaged", "stale")));
    define(
        "advise",
        "Says which indexes would save most, by a sample of each column.",
        "",
        "column STRING, kind STRING, encoding STRING, reason STRING, values BIGINT,"
            + " predicted_bytes BIGINT, saved_bytes BIGINT, queries BIGINT, include ARRAY<STRING>",
        report -> objects(report.get("indexes"), each -> each));
    define(
        BUILD,
        "Builds what the declared indexes do not cover yet.",
        BUILD_ARGUMENTS
            + ", verify DOUBLE, commit_every BIGINT, max_failures BIGINT, merge BOOLEAN",
        "indexes ARRAY<STRING>, files BIGINT, rows BIGINT, segments BIGINT, taken_over BIGINT,"
            + " bytes_written BIGINT, spilled BIGINT, failed ARRAY<STRING>, adopted BIGINT,"
            + " verified BIGINT, repaired BIGINT, declined ARRAY<STRING>,"
            + " false_statistics ARRAY<STRING>, segments_merged BIGINT, merged_into BIGINT,"
            + " bytes_merged BIGINT, seconds DOUBLE",
        report ->
            List.of(withTexts((ObjectNode) report, "failed", "declined", "false_statistics")));
    define(
        "compact",
        "Merges segments, so that a search asks few.",
        BUILD_ARGUMENTS + ", `full` BOOLEAN",
        "indexes ARRAY<STRING>, segments_merged BIGINT, segments_written BIGINT, bytes_written BIGINT,"
            + " seconds DOUBLE",
        List::of);
    define(
        "declare_key",
        "Declares the columns that tell rows apart, so that the table takes changes.",
        "columns ARRAY<STRING>, options MAP<STRING, STRING>",
        "key ARRAY<STRING>, declared BOOLEAN",
        List::of);
    define(
        "migrate",
        "Compacts buffered changes into the table's files.",
        "fraction DOUBLE, max_bytes BIGINT, threshold DOUBLE",
        "rows BIGINT, rows_replaced BIGINT, files_replaced BIGINT, files_written BIGINT,"
            + " bytes_written BIGINT, delta_version BIGINT, seconds DOUBLE",
        List::of);
    define(
        "publish",
        "Lets migrated files be files of the table's folder, for every reader.",
        "",
        "files_published BIGINT, originals_moved BIGINT, bytes_published BIGINT, seconds DOUBLE",
        List::of);
    define(
        "repair",
        "Keeps or discards buffered changes whose store does not belong to the Delta table any more.",
        "buffered STRING",
        "repaired BOOLEAN",
        List::of);
    define(
        "vacuum",
        "Removes what nobody needs any more: one row for each file.",
        "older_than STRING, dry_run BOOLEAN, originals BOOLEAN",
        "path STRING, bytes BIGINT, dry_run BOOLEAN",
        report -> objects(report.get("removed"), each -> waste(each, report.get("dry_run"))));
    define(
        "history",
        "Lists the versions that VERSION AS OF takes, newest first.",
        "limit BIGINT",
        "version BIGINT, time TIMESTAMP, operation STRING, files_added BIGINT, files_removed BIGINT,"
            + " rows BIGINT",
        report -> objects(report, Procedures::version));
  }

  private Procedures() {}

  /** The names that {@code CALL} takes, in the order of the alphabet. */
  public static Set<String> names() {
    Set<String> names = new TreeSet<>(ALL.keySet());
    names.addAll(WalkProcedure.names());
    return names;
  }

  /** A procedure as the catalog of this name has it. An unknown name is an error that lists all. */
  public static UnboundProcedure of(
      String catalog, Function<String, LakemarkOptions> tables, String name) {
    if (WalkProcedure.names().contains(name)) {
      return WalkProcedure.of(tables, name);
    }
    LakemarkProcedure.Definition definition = ALL.get(name);
    if (definition == null) {
      throw new LakemarkException.NotFound(
          "there is no procedure " + name + "; there are " + String.join(", ", names()));
    }
    return new LakemarkProcedure(catalog, tables, definition);
  }

  private static void define(
      String name,
      String description,
      String arguments,
      String columns,
      Function<JsonNode, List<JsonNode>> rows) {
    ALL.put(name, LakemarkProcedure.Definition.of(name, description, arguments, columns, rows));
  }

  private static List<JsonNode> objects(JsonNode list, Function<ObjectNode, JsonNode> row) {
    List<JsonNode> rows = new ArrayList<>();
    list.forEach(each -> rows.add(row.apply((ObjectNode) each)));
    return rows;
  }

  /** A report whose findings of these names are texts. */
  private static ObjectNode withTexts(ObjectNode report, String... findings) {
    for (String name : findings) {
      report.set(name, texts(report.get(name)));
    }
    return report;
  }

  private static JsonNode version(ObjectNode version) {
    version.set("time", version.get("time_ms"));
    return version;
  }

  private static JsonNode waste(ObjectNode file, JsonNode isDryRun) {
    file.set("dry_run", isDryRun);
    return file;
  }

  /** Findings as the shell prints them. */
  private static ArrayNode texts(JsonNode findings) {
    ArrayNode texts = Json.list();
    findings.forEach(
        each -> texts.add(each.get("path").asText() + ": " + each.get("problem").asText()));
    return texts;
  }
}

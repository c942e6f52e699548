package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.NativeLibrary;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What a reader of a table's own Parquet files may leave out, as the indexes know it. Such a reader
 * sees neither buffered changes nor what migrations have not published.
 *
 * @param missesBuffered whether the table has buffered changes
 * @param missesUnpublished whether migrations wrote files that are not published
 * @param rowGroupsTotal row groups of all files whose row groups are known
 * @param rowGroupsSkipped how many of them need not be read
 * @param files the files of which something need not be read, by the paths that the indexes know
 */
public record RowGroupSelection(
    boolean missesBuffered,
    boolean missesUnpublished,
    long rowGroupsTotal,
    long rowGroupsSkipped,
    Map<String, PrunedFile> files) {
  /** Of a reader that is none of a version of a Delta table. */
  public static final long NO_VERSION = -1;

  /**
   * A file as the indexes know it; one of the same path that differs is another file, to be read
   * whole.
   *
   * @param size bytes
   * @param modified milliseconds since 1970
   * @param rowGroups row groups that it has
   * @param rows rows that it has
   * @param kept row groups that need be read, by ordinal
   */
  public record PrunedFile(long size, long modified, int rowGroups, long rows, BitSet kept) {}

  /**
   * The part of filters, all of which must hold, that indexes could answer.
   *
   * @param columns the columns that the filters may name
   * @param predicates the filters
   * @return the request; nothing if no index could rule out anything by the filters
   */
  public static Optional<String> request(StructType columns, List<Predicate> predicates) {
    PredicateTranslator translator = new PredicateTranslator(columns);
    boolean isUseful = predicates.stream().anyMatch(translator::isUseful);
    return isUseful ? Optional.of(translator.conjunction(predicates)) : Optional.empty();
  }

  /**
   * Probes the indexes of a table.
   *
   * @param path the table's root
   * @param storage what the Rust library hears of it beside its path, or null
   * @param version the version of a Delta table that Delta's reader reads; {@link #NO_VERSION} for
   *     any other reader
   * @param request of {@link #request}; without one the answer says only what the reader misses
   * @param columns the columns that the request may name, with the types that the reader gives them
   * @return the answer; it is empty for a Delta table without a version, as its log says which
   *     files count
   */
  public static RowGroupSelection of(
      String path, String storage, long version, Optional<String> request, StructType columns) {
    Map<String, String> types = new HashMap<>();
    for (StructField column : columns.fields()) {
      types.put(column.name(), column.dataType().catalogString());
    }
    NativeLibrary.load();
    return parse(
        NativeLibrary.rowGroups(path, storage, version, request.orElse(null), Json.write(types)));
  }

  /**
   * Whether a table has buffered changes, which a reader of its own files does not see.
   *
   * @param path the table's root
   * @param storage what the Rust library hears of it beside its path, or null
   */
  public static boolean missesBuffered(String path, String storage) {
    NativeLibrary.load();
    return Json.read(NativeLibrary.changesBesideFiles(path, storage)).get("buffered").asBoolean();
  }

  static RowGroupSelection parse(String answer) {
    JsonNode root = Json.read(answer);
    Map<String, PrunedFile> files = new HashMap<>();
    for (JsonNode file : root.get("files")) {
      BitSet kept = new BitSet();
      file.get("kept").forEach(range -> kept.set(range.get(0).asInt(), range.get(1).asInt()));
      files.put(
          file.get("path").asText(),
          new PrunedFile(
              file.get("size").asLong(),
              file.get("modifiedMs").asLong(),
              file.get("rowGroups").asInt(),
              file.get("rows").asLong(),
              kept));
    }
    return new RowGroupSelection(
        root.get("missed").get("buffered").asBoolean(),
        root.get("missed").get("unpublished").asBoolean(),
        root.get("rowGroupsTotal").asLong(),
        root.get("rowGroupsSkipped").asLong(),
        Map.copyOf(files));
  }
}

package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.Json;
import java.util.List;

/**
 * What Spark gave to the scan of a table.
 *
 * @param table the table as plans name it
 * @param filters conditions that the indexes were probed for; Spark tests them again unless they
 *     were taken off it
 * @param aggregates what is computed instead of rows
 * @param limit how many rows are enough; none if it is negative
 * @param top which rows come first, if only these are selected; empty otherwise
 */
record PushedDown(
    String table, List<String> filters, List<String> aggregates, int limit, String top) {

  /** In a line of Spark's EXPLAIN. */
  String line() {
    String line = table + " PushedFilters: [" + String.join(", ", filters) + "]";
    return top.isEmpty() ? line : line + ", top: " + top;
  }

  ObjectNode facts() {
    ObjectNode facts = Json.object().put("table", table);
    facts.set("filters_pushed", Json.list(filters));
    facts.set("aggregates", Json.list(aggregates));
    facts.put("top", top);
    return limit < 0 ? facts.putNull("limit") : facts.put("limit", limit);
  }
}

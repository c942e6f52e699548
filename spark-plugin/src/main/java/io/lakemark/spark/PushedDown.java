package io.lakemark.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;

/**
 * What Spark gave to the scan of a table.
 *
 * @param table the table as plans name it
 * @param filters conditions that the marks were asked; Spark tests them again unless it was told
 *     not to
 * @param aggregates what is computed instead of rows
 * @param limit how many rows are enough; none if it is negative
 */
record PushedDown(String table, List<String> filters, List<String> aggregates, int limit) {

  /** In a line of Spark's EXPLAIN. */
  String line() {
    return table + " PushedFilters: [" + String.join(", ", filters) + "]";
  }

  ObjectNode facts() {
    ObjectNode facts = Json.object().put("table", table);
    facts.set("filters_pushed", Json.list(filters));
    facts.set("aggregates", Json.list(aggregates));
    return limit < 0 ? facts.putNull("limit") : facts.put("limit", limit);
  }
}

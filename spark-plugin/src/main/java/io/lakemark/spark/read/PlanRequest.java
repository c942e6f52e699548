package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.Json;
import java.util.Optional;
import org.apache.spark.sql.types.StructType;

/**
 * What a scan needs of the rows that a filter selects.
 *
 * @param columns the columns that are read
 * @param sizes of the splits
 * @param change what they are read for, if they are to be changed
 */
record PlanRequest(StructType columns, SplitSizes sizes, Optional<RowsForChange> change) {
  /** The same for the native side. */
  ObjectNode json() {
    ObjectNode json = Json.object();
    json.set("columns", Json.read(columns.json()).get("fields"));
    json.set("sizes", sizes.json());
    change.ifPresent(rows -> json.set("change", rows.json()));
    return json;
  }
}

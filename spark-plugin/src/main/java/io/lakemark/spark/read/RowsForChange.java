package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.Json;
import java.util.List;
import java.util.function.Consumer;
import org.apache.spark.sql.types.StructType;

/**
 * How a statement that changes rows goes on with those that it reads.
 *
 * @param known the columns of the table as Spark knows them
 * @param exact those whose values it writes back, or names rows by: Spark may cut none of them
 * @param seen given each state that a scan was planned with
 */
public record RowsForChange(StructType known, List<String> exact, Consumer<ReadState> seen) {
  /** The same for the native side. */
  ObjectNode json() {
    ObjectNode json = Json.object();
    json.set("known", Json.read(known.json()).get("fields"));
    exact.forEach(json.putArray("exact")::add);
    return json;
  }
}

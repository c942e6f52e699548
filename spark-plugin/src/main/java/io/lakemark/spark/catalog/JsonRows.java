package io.lakemark.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.read.LakemarkLocalRows;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Objects in JSON as rows of Spark: each column takes the member of its name. */
final class JsonRows {
  private JsonRows() {}

  /** A scan that gives these objects; Spark runs no job for it. */
  static LocalScan scan(String description, StructType schema, List<JsonNode> objects) {
    InternalRow[] rows =
        objects.stream().map(each -> row(schema, each)).toArray(InternalRow[]::new);
    return new LakemarkLocalRows(schema, rows).scan(description);
  }

  private static InternalRow row(StructType schema, JsonNode object) {
    Object[] values = new Object[schema.length()];
    for (int at = 0; at < values.length; at++) {
      StructField column = schema.fields()[at];
      values[at] = value(column.dataType(), object.path(column.name()));
    }
    return new GenericInternalRow(values);
  }

  /** A value as Spark holds it; times are milliseconds in JSON. */
  private static Object value(DataType type, JsonNode node) {
    if (node.isNull() || node.isMissingNode()) {
      return null;
    }
    if (type instanceof StringType) {
      return UTF8String.fromString(node.asText());
    }
    if (type instanceof LongType) {
      return node.asLong();
    }
    if (type instanceof DoubleType) {
      return node.asDouble();
    }
    if (type instanceof BooleanType) {
      return node.asBoolean();
    }
    if (type instanceof TimestampType) {
      return Math.multiplyExact(node.asLong(), 1000L);
    }
    if (type instanceof ArrayType array) {
      Object[] items = new Object[node.size()];
      for (int at = 0; at < items.length; at++) {
        items[at] = value(array.elementType(), node.get(at));
      }
      return new GenericArrayData(items);
    }
    throw new LakemarkException.Internal("a report has no column of type " + type.sql());
  }
}

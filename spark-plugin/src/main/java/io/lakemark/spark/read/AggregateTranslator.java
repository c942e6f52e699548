package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.Json;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.aggregate.Sum;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's aggregates to the JSON that {@code rust/jni/src/aggregate.rs} reads.
 *
 * <p>Taken are groups of plain columns and fields of structs, and counts, extremes and sums of
 * such. A mean is not taken; Spark then requests a sum and a count. Spark may know a column by
 * another type than the table has (a schema that users declared, strings with a collation). Such
 * columns stay with Spark: a value that is cast may be another value's equal.
 */
final class AggregateTranslator {
  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

  private final StructType schema;
  private final StructType tableSchema;

  /**
   * Makes a translator.
   *
   * @param schema the columns as Spark knows them
   * @param tableSchema the columns as the pinned table has them
   */
  AggregateTranslator(StructType schema, StructType tableSchema) {
    this.schema = schema;
    this.tableSchema = tableSchema;
  }

  /** The request; empty if it has anything that the indexes could not answer. */
  Optional<String> request(Aggregation aggregation) {
    ArrayNode groups = NODES.arrayNode();
    for (Expression group : aggregation.groupByExpressions()) {
      Optional<String> column = column(group);
      if (column.isEmpty()) {
        return Optional.empty();
      }
      groups.add(column.get());
    }
    ArrayNode measures = NODES.arrayNode();
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      Optional<ObjectNode> measure = measure(function);
      if (measure.isEmpty()) {
        return Optional.empty();
      }
      measures.add(measure.get());
    }
    ObjectNode request = NODES.objectNode();
    request.set("groups", groups);
    request.set("measures", measures);
    return Optional.of(Json.write(request));
  }

  private Optional<ObjectNode> measure(AggregateFunc function) {
    if (function instanceof CountStar) {
      return Optional.of(node(AggregateFunction.COUNT_ALL));
    } else if (function instanceof Count count) {
      return measure(
          count.isDistinct() ? AggregateFunction.COUNT_DISTINCT : AggregateFunction.COUNT,
          count.column());
    } else if (function instanceof Min min) {
      return measure(AggregateFunction.MIN, min.column());
    } else if (function instanceof Max max) {
      return measure(AggregateFunction.MAX, max.column());
    } else if (function instanceof Sum sum && !sum.isDistinct()) {
      return measure(AggregateFunction.SUM, sum.column());
    }
    return Optional.empty();
  }

  private Optional<ObjectNode> measure(AggregateFunction function, Expression argument) {
    return column(argument).map(column -> node(function).put("column", column));
  }

  private static ObjectNode node(AggregateFunction function) {
    return NODES.objectNode().put("function", function.jsonName());
  }

  private Optional<String> column(Expression expression) {
    return FieldNames.of(expression, schema)
        .filter(
            name -> FieldNames.typeOf(name, schema).equals(FieldNames.typeOf(name, tableSchema)));
  }
}

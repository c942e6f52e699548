package io.lakemark.spark.read;

import static io.lakemark.spark.read.AggregateFunction.COUNT;
import static io.lakemark.spark.read.AggregateFunction.COUNT_ALL;
import static io.lakemark.spark.read.AggregateFunction.COUNT_DISTINCT;
import static io.lakemark.spark.read.AggregateFunction.MAX;
import static io.lakemark.spark.read.AggregateFunction.MIN;

import io.lakemark.spark.jni.Json;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What the indexes know of the columns of a scan, for Spark's optimizer.
 *
 * @param min the least value, as Spark holds it
 * @param max the greatest
 * @param nullCount rows that hold none
 * @param distinctCount different values
 */
record IndexStatistics(
    Optional<Object> min, Optional<Object> max, OptionalLong nullCount, OptionalLong distinctCount)
    implements ColumnStatistics {

  /**
   * Probes the indexes of every column that is read. Only the cost-based optimizer looks at
   * columns, so that nothing is probed while {@code spark.sql.cbo.enabled} is off.
   */
  static Map<NamedReference, ColumnStatistics> of(
      NativeTable table, String filter, StructType columns) {
    Map<NamedReference, ColumnStatistics> known = new HashMap<>();
    if (SQLConf.get().cboEnabled()) {
      for (StructField column : columns.fields()) {
        of(table, filter, column)
            .ifPresent(found -> known.put(LakemarkScan.reference(column.name()), found));
      }
    }
    return known;
  }

  private static Optional<ColumnStatistics> of(
      NativeTable table, String filter, StructField column) {
    boolean isText =
        column.dataType() instanceof StringType || column.dataType() instanceof BinaryType;
    // Spark estimates nothing by the extremes of texts.
    List<AggregateFunction> functions =
        isText
            ? List.of(COUNT_ALL, COUNT, COUNT_DISTINCT)
            : List.of(COUNT_ALL, COUNT, COUNT_DISTINCT, MIN, MAX);
    String request =
        Json.write(
            Map.of(
                "groups",
                List.of(),
                "measures",
                functions.stream().map(each -> measure(each, column.name())).toList()));
    return table
        .aggregate(filter, request)
        .map(
            answer -> {
              InternalRow row = answer.rows()[0];
              return new IndexStatistics(
                  isText ? Optional.empty() : value(answer, row, 3, column.dataType()),
                  isText ? Optional.empty() : value(answer, row, 4, column.dataType()),
                  OptionalLong.of(row.getLong(0) - row.getLong(1)),
                  OptionalLong.of(row.getLong(2)));
            });
  }

  private static Map<String, String> measure(AggregateFunction function, String column) {
    return function == COUNT_ALL
        ? Map.of("function", function.jsonName())
        : Map.of("function", function.jsonName(), "column", column);
  }

  /** A value, unless the column has another type in the table than the query says. */
  private static Optional<Object> value(
      LakemarkLocalRows answer, InternalRow row, int at, DataType type) {
    boolean isKnown = answer.schema().fields()[at].dataType().equals(type) && !row.isNullAt(at);
    return isKnown ? Optional.of(row.get(at, type)) : Optional.empty();
  }
}

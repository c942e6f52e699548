package io.lakemark.spark.read;

/** What is computed of rows, by the name that {@code rust/jni/src/aggregate.rs} reads. */
enum AggregateFunction {
  /** The number of rows: the only one that is of no column. */
  COUNT_ALL("count_all"),
  COUNT("count"),
  COUNT_DISTINCT("count_distinct"),
  MIN("min"),
  MAX("max"),
  SUM("sum");

  private final String jsonName;

  AggregateFunction(String jsonName) {
    this.jsonName = jsonName;
  }

  String jsonName() {
    return jsonName;
  }
}

package io.lakemark.spark.read;

import java.util.Locale;

/** What is computed of rows, by the name that {@code rust/jni/src/aggregate.rs} reads. */
enum AggregateFunction {
  /** The number of rows: the only one that is of no column. */
  COUNT_ALL,
  COUNT,
  COUNT_DISTINCT,
  MIN,
  MAX,
  SUM;

  /** The name of the constant in lower case, as the native side names its own in JSON. */
  String jsonName() {
    return name().toLowerCase(Locale.ROOT);
  }
}

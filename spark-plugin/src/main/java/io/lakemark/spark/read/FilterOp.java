package io.lakemark.spark.read;

import java.util.Locale;

/** What a node of a filter does, by the name that {@code rust/jni/src/filter.rs} reads. */
enum FilterOp {
  AND,
  OR,
  NOT,
  TRUE,
  FALSE,
  /** What Spark alone can evaluate: the native side keeps every row. */
  UNKNOWN,
  IS_NULL,
  EQ,
  LT,
  LE,
  GT,
  GE,
  STARTS_WITH,
  IN,
  /** The same of many whole numbers, as bytes. */
  IN_LONGS;

  /** The name of the constant in lower case, as the native side names its own in JSON. */
  String jsonName() {
    return name().toLowerCase(Locale.ROOT);
  }

  static FilterOp of(String jsonName) {
    return valueOf(jsonName.toUpperCase(Locale.ROOT));
  }
}

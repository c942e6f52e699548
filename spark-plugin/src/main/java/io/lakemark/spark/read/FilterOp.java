package io.lakemark.spark.read;

import java.util.Arrays;

/** What a node of a filter does, by the name that {@code rust/jni/src/filter.rs} reads. */
enum FilterOp {
  AND("and"),
  OR("or"),
  NOT("not"),
  TRUE("true"),
  FALSE("false"),
  /** What Spark alone can evaluate: the native side keeps every row. */
  UNKNOWN("unknown"),
  IS_NULL("is_null"),
  EQ("eq"),
  LT("lt"),
  LE("le"),
  GT("gt"),
  GE("ge"),
  STARTS_WITH("starts_with"),
  IN("in"),
  /** The same of many whole numbers, as bytes. */
  IN_LONGS("in_longs");

  private final String jsonName;

  FilterOp(String jsonName) {
    this.jsonName = jsonName;
  }

  String jsonName() {
    return jsonName;
  }

  static FilterOp of(String jsonName) {
    return Arrays.stream(values())
        .filter(each -> each.jsonName.equals(jsonName))
        .findFirst()
        .orElseThrow();
  }
}

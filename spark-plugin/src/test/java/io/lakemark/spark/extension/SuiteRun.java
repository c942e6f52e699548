package io.lakemark.spark.extension;

import java.util.Locale;

/** How a run of Spark's own test suites reads, as the system property {@link #NAME} says. */
enum SuiteRun {
  /** Spark's own reader reads everything, and no folder is marked. */
  FILES,
  /** Spark's own reader reads what the indexes leave. */
  EXTENSION,
  /** The connector reads views, and Spark's own reader what the indexes leave of tables. */
  CONNECTOR;

  /** The name of the property. */
  static final String NAME = "lakemark.suites.run";

  /** The run of this process. */
  static SuiteRun ofProcess() {
    String named = System.getProperty(NAME);
    if (named == null) {
      throw new IllegalStateException("set the system property " + NAME + " to a run");
    }
    return valueOf(named.toUpperCase(Locale.ROOT));
  }
}

package io.lakemark.spark.extension;

import org.apache.spark.sql.SparkSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The versions of Spark on which the tests ran, for each kind of table. */
enum TestedSpark {
  /** Parquet files as Spark lists them. */
  PARQUET("Parquet files", "4\\.[123]\\..*"),
  /** Delta tables; Delta has no release for other versions. */
  DELTA("Delta tables", "4\\.[12]\\..*");

  /** The setting that allows versions that this was not tested on. */
  static final String UNTESTED_SPARK = "spark.lakemark.untested_spark";

  private static final Logger LOG = LoggerFactory.getLogger(TestedSpark.class);

  private final String what;
  private final String versions;

  TestedSpark(String what, String versions) {
    this.what = what;
    this.versions = versions;
  }

  /** Whether a session uses indexes of such tables; it is told once if it does not. */
  boolean allows(SparkSession session, SessionCache memory) {
    String version = session.version();
    if (has(version) || session.conf().get(UNTESTED_SPARK, "false").equals("true")) {
      return true;
    }
    if (memory.addWarned(what + version)) {
      LOG.warn(
          "Lakemark's indexes are not used for {}: this was not tested on Spark {}; {}=true uses"
              + " them",
          what,
          version,
          UNTESTED_SPARK);
    }
    return false;
  }

  /** Whether the tests ran on a version. */
  boolean has(String version) {
    return version.matches(versions);
  }
}

package io.lakemark.spark.extension;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Has Spark's own test suites read folders that are marked ({@code make test-spark-suites}). It
 * stands before {@link LakemarkExtension} in {@code spark.sql.extensions}, so that a folder has its
 * indexes when that one looks for them.
 */
public final class SuiteExtension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  /** Made by Spark, by reflection. */
  public SuiteExtension() {}

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectParser(SuiteViews::new);
    if (SuiteRun.ofProcess() != SuiteRun.FILES) {
      SuiteScans scans = new SuiteScans();
      extensions.injectQueryStagePrepRule(session -> scans);
      extensions.injectColumnar(
          session ->
              new ColumnarRule() {
                @Override
                public Rule<SparkPlan> preColumnarTransitions() {
                  return scans;
                }
              });
    }
    return BoxedUnit.UNIT;
  }
}

package io.lakemark.spark.extension;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * The session extension: {@code
 * spark.sql.extensions=io.lakemark.spark.extension.LakemarkExtension}, before or behind others.
 *
 * <p>Settings of a session:
 *
 * <ul>
 *   <li>{@code spark.lakemark.use_index}: {@code false} reads as if there were no indexes;
 *   <li>{@code spark.lakemark.delta}: {@code false} leaves Delta tables to Delta alone;
 *   <li>{@code spark.lakemark.store.PATH}: where the indexes of the table at {@code PATH} are, if
 *       not in {@code _lakemark/} beside the data;
 *   <li>{@code spark.lakemark.untested_spark}: {@code true} uses indexes also on versions of Spark
 *       that this was not tested on.
 * </ul>
 */
public final class LakemarkExtension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  /** Made by Spark, by reflection. */
  public LakemarkExtension() {}

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    Map<SparkSession, SessionCache> memories = Collections.synchronizedMap(new WeakHashMap<>());
    extensions.injectOptimizerRule(
        session -> new BufferedDeltaReads(session, memory(memories, session)));
    // Plans that Spark changes while they run go by the one, all others by the other.
    extensions.injectQueryStagePrepRule(
        session -> new IndexedScans(session, memory(memories, session)));
    extensions.injectColumnar(
        session -> {
          IndexedScans scans = new IndexedScans(session, memory(memories, session));
          return new ColumnarRule() {
            @Override
            public Rule<SparkPlan> preColumnarTransitions() {
              return scans;
            }
          };
        });
    return BoxedUnit.UNIT;
  }

  private static SessionCache memory(
      Map<SparkSession, SessionCache> memories, SparkSession session) {
    return memories.computeIfAbsent(session, added -> new SessionCache());
  }
}

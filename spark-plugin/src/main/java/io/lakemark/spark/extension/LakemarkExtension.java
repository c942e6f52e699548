package io.lakemark.spark.extension;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * The session extension: {@code
 * spark.sql.extensions=io.lakemark.spark.extension.LakemarkExtension}.
 *
 * <p>Settings of a session:
 *
 * <ul>
 *   <li>{@code spark.lakemark.use_index}: {@code false} reads as if there were no indexes;
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
    // Spark makes a strategy for each query.
    Map<SparkSession, SessionCache> memories = Collections.synchronizedMap(new WeakHashMap<>());
    extensions.injectPlannerStrategy(
        session ->
            new IndexedScanStrategy(
                session, memories.computeIfAbsent(session, added -> new SessionCache())));
    return BoxedUnit.UNIT;
  }
}

package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.Json;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/**
 * How large the splits of a scan are: by the settings that Spark has for its own scans of files.
 *
 * @param maxBytes of a split, about
 * @param openBytes that could be read while a file is opened
 * @param minSplits so that no core is idle
 */
record SplitSizes(long maxBytes, long openBytes, long minSplits) {
  /** As the session of the statement that is planned has them. */
  static SplitSizes ofSession() {
    SparkSession session = SparkSession.active();
    long cores = session.sparkContext().defaultParallelism();
    return new SplitSizes(
        SQLConf.get().filesMaxPartitionBytes(),
        SQLConf.get().filesOpenCostInBytes(),
        Stream.of("spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism")
            .flatMap(setting -> Optional.ofNullable(session.conf().get(setting, null)).stream())
            .map(Long::valueOf)
            .findFirst()
            .orElse(cores));
  }

  /** The same for the native side. */
  ObjectNode json() {
    return Json.object()
        .put("maxBytes", maxBytes)
        .put("openBytes", openBytes)
        .put("minSplits", minSplits);
  }
}

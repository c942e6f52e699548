package io.lakemark.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.NativeLibrary;
import io.lakemark.spark.jni.TaskRunner;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * A build of indexes as a job of Spark's: the driver plans, one task writes one group of segments,
 * and the driver commits all of them at once.
 *
 * <p>Tasks need not know of each other. What is left of those that fail, or that Spark runs twice,
 * is files that no manifest names; a vacuum removes them.
 */
final class BuildJob implements TaskRunner {
  private static final String DESCRIPTION = "spark.job.description";

  private final SparkContext spark;
  private final String what;
  private final BuildTask work;
  private final List<byte[]> tasks = new ArrayList<>();
  private byte[][] parts = {};
  private Exception failure;

  private BuildJob(SparkContext spark, String what, BuildTask work) {
    this.spark = spark;
    this.what = what;
    this.work = work;
  }

  /**
   * Builds what the declared indexes of a table do not cover yet.
   *
   * @param arguments {@code index}, the only one to build; {@code verify}, to compare every segment
   *     first; {@code memory} and {@code threads} of a task
   * @return the report
   */
  static JsonNode run(LakemarkOptions named, Map<String, Object> arguments) {
    NativeLibrary.load();
    LakemarkOptions table = named.absolute();
    SparkContext spark = SparkSession.active().sparkContext();
    Map<String, Object> request = new HashMap<>();
    Map<String, Object> tuning = new HashMap<>(arguments);
    Object index = tuning.remove("index");
    if (index != null) {
      request.put("index", index);
    }
    Object verify = tuning.remove("verify");
    if (verify != null) {
      request.put("verify", verify);
    }
    request.put("workers", workers(spark));
    String what = (index == null ? "the indexes" : index) + " of " + table.path();
    BuildJob job = new BuildJob(spark, what, BuildTask.of(table, tuning, spark));
    try {
      return Json.read(NativeLibrary.build(table.path(), table.store(), Json.write(request), job));
    } catch (LakemarkException e) {
      throw job.failure == null ? e : job.<RuntimeException>explained();
    }
  }

  /** Tasks that can run at the same time. */
  private static int workers(SparkContext spark) {
    int cpus = spark.getConf().getInt("spark.task.cpus", 1);
    return Math.max(1, spark.defaultParallelism() / Math.max(1, cpus));
  }

  @Override
  public void add(byte[] task) {
    tasks.add(task);
  }

  @Override
  public void run() {
    parts = new byte[tasks.size()][];
    String before = spark.getLocalProperty(DESCRIPTION);
    spark.setJobDescription("Lakemark: building " + what + ", " + tasks.size() + " tasks");
    try {
      RDD<byte[]> rdd = new JavaSparkContext(spark).parallelize(tasks, tasks.size()).rdd();
      spark.runJob(
          rdd.setName("tasks of a build"), work, keeper(), ClassTag$.MODULE$.apply(byte[].class));
    } catch (Exception e) {
      failure = e;
    } finally {
      spark.setLocalProperty(DESCRIPTION, before);
    }
  }

  @Override
  public byte[] part(int task) {
    return parts[task];
  }

  /** Spark calls it once for each task, however often that ran. */
  private AbstractFunction2<Object, byte[], BoxedUnit> keeper() {
    return new AbstractFunction2<>() {
      @Override
      public BoxedUnit apply(Object task, byte[] part) {
        parts[(Integer) task] = part;
        return BoxedUnit.UNIT;
      }
    };
  }

  /** The failure of a task as it was there, else Spark's own. */
  // Spark's exceptions are checked ones, which Scala does not declare.
  @SuppressWarnings({"unchecked", "TypeParameterUnusedInFormals"})
  private <E extends Throwable> E explained() throws E {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause instanceof LakemarkException ours) {
        ours.addSuppressed(failure);
        throw ours;
      }
    }
    throw (E) failure;
  }
}

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
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SimpleFutureAction;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;
import scala.util.Try;

/**
 * A build of indexes as a job of Spark's: the driver plans, one task writes one group of segments,
 * and the driver commits them as tasks come to their end.
 *
 * <p>Tasks need not know of each other. What is left of those that fail, or that Spark runs twice,
 * is files that no manifest names; a vacuum removes them.
 *
 * <p>Spark hands over what a task gave on the thread that schedules everything else. So it is only
 * put into a queue there, and the thread that waits for the build commits it.
 */
final class BuildJob implements TaskRunner {
  private static final String DESCRIPTION = "spark.job.description";

  /** Arguments that are no matter of the tasks. */
  private static final List<String> OF_THE_DRIVER =
      List.of("index", "verify", "commit_every", "max_failures", "merge");

  /** What the whole job gives. */
  private static final AbstractFunction0<BoxedUnit> DONE =
      new AbstractFunction0<>() {
        @Override
        public BoxedUnit apply() {
          return BoxedUnit.UNIT;
        }
      };

  private final SparkContext spark;
  private final String what;
  private final BuildTask work;
  private final List<byte[]> tasks = new ArrayList<>();
  private final Map<Integer, byte[]> parts = new ConcurrentHashMap<>();
  private final BlockingQueue<Integer> ended = new LinkedBlockingQueue<>();
  private SimpleFutureAction<BoxedUnit> job;
  private Throwable failure;

  private BuildJob(SparkContext spark, String what, BuildTask work) {
    this.spark = spark;
    this.what = what;
    this.work = work;
  }

  /**
   * Builds what the declared indexes of a table do not cover yet.
   *
   * @param arguments {@code index}, the only one to build; {@code verify}, the share of segments to
   *     compare first; {@code commit_every}, the seconds from one commit to the next; {@code
   *     max_failures}, the data files that may fail; {@code merge}, whether segments are merged
   *     afterwards if they are too many; {@code memory} and {@code threads} of a task
   * @return the report
   */
  static JsonNode run(LakemarkOptions named, Map<String, Object> arguments) {
    NativeLibrary.load();
    LakemarkOptions table = named.absolute();
    SparkContext spark = SparkSession.active().sparkContext();
    Map<String, Object> request = new HashMap<>();
    Map<String, Object> tuning = new HashMap<>(arguments);
    for (String name : OF_THE_DRIVER) {
      Object given = tuning.remove(name);
      if (given != null) {
        request.put(name, given);
      }
    }
    request.put("workers", workers(spark));
    Object index = request.get("index");
    String what = (index == null ? "the indexes" : index) + " of " + table.path();
    BuildJob job = new BuildJob(spark, what, BuildTask.of(table, tuning, spark));
    try {
      return Json.read(
          NativeLibrary.build(table.path(), table.storageJson(), Json.write(request), job));
    } catch (LakemarkException e) {
      throw job.failure == null ? e : job.<RuntimeException>explained(e);
    } finally {
      job.cancel();
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
  public void start() {
    List<Object> numbers = new ArrayList<>();
    for (int task = 0; task < tasks.size(); task++) {
      numbers.add(task);
    }
    String before = spark.getLocalProperty(DESCRIPTION);
    spark.setJobDescription("Lakemark: building " + what + ", " + tasks.size() + " tasks");
    try {
      RDD<byte[]> rdd = new JavaSparkContext(spark).parallelize(tasks, tasks.size()).rdd();
      job =
          spark.submitJob(
              rdd.setName("tasks of a build"),
              work,
              CollectionConverters.asScala(numbers).toSeq(),
              keeper(),
              DONE);
    } finally {
      spark.setLocalProperty(DESCRIPTION, before);
    }
  }

  @Override
  public int next(long millis) {
    try {
      // Once the job is at its end, everything that it gave is in the queue.
      boolean isOver = job.isCompleted();
      Integer task = isOver ? ended.poll() : ended.poll(millis, TimeUnit.MILLISECONDS);
      if (task != null) {
        return task;
      }
      if (isOver) {
        failure = failureOf(job);
      }
      return isOver ? ENDED : NONE_YET;
    } catch (InterruptedException e) {
      failure = e;
      return ENDED;
    }
  }

  @Override
  public byte[] part(int task) {
    return parts.remove(task);
  }

  /** Stops tasks that nobody waits for any more. */
  private void cancel() {
    if (job != null && !job.isCompleted()) {
      job.cancel();
    }
  }

  /** Spark calls it once for each task, however often that ran. */
  private AbstractFunction2<Object, byte[], BoxedUnit> keeper() {
    return new AbstractFunction2<>() {
      @Override
      public BoxedUnit apply(Object task, byte[] part) {
        parts.put((Integer) task, part);
        ended.add((Integer) task);
        return BoxedUnit.UNIT;
      }
    };
  }

  private static Throwable failureOf(SimpleFutureAction<BoxedUnit> job) {
    Option<Try<BoxedUnit>> value = job.value();
    return value.isDefined() && value.get().isFailure() ? value.get().failed().get() : null;
  }

  /** The failure of a task as it was there, else Spark's own, with what the build said of it. */
  // Spark's exceptions are checked ones, which Scala does not declare.
  @SuppressWarnings({"unchecked", "TypeParameterUnusedInFormals"})
  private <E extends Throwable> E explained(LakemarkException said) throws E {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause instanceof LakemarkException ours) {
        ours.addSuppressed(failure);
        ours.addSuppressed(said);
        throw ours;
      }
    }
    failure.addSuppressed(said);
    throw (E) failure;
  }
}

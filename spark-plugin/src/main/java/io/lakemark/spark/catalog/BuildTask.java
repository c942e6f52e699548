package io.lakemark.spark.catalog;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.NativeLibrary;
import io.lakemark.spark.jni.TaskMemory;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/** What an executor does for a {@link BuildJob}. */
final class BuildTask extends AbstractFunction1<Iterator<byte[]>, byte[]> implements Serializable {
  private static final long serialVersionUID = 1L;

  /** The share of an executor's memory that unfinished parts of all of its tasks take. */
  private static final int MEMORY_SHARE = 4;

  /** What a build spills below even where Spark has no memory left for it. */
  private static final long LEAST_MEMORY = 16L << 20;

  private final LakemarkOptions table;

  /** As the user gave it; none is 0. */
  private final long memory;

  private final long threads;

  /** Tasks that an executor runs at the same time, as far as the driver knows; else 0. */
  private final int slots;

  private BuildTask(LakemarkOptions table, long memory, long threads, int slots) {
    this.table = table;
    this.memory = memory;
    this.threads = threads;
    this.slots = slots;
  }

  static BuildTask of(LakemarkOptions table, Map<String, Object> tuning, SparkContext spark) {
    int cores =
        spark.isLocal()
            ? spark.defaultParallelism()
            : spark.getConf().getInt("spark.executor.cores", 0);
    return new BuildTask(table, number(tuning, "memory"), number(tuning, "threads"), cores);
  }

  private static long number(Map<String, Object> tuning, String name) {
    return tuning.get(name) instanceof Number given ? given.longValue() : 0;
  }

  @Override
  public byte[] apply(Iterator<byte[]> tasks) {
    NativeLibrary.load();
    TaskContext context = TaskContext.get();
    Map<String, Object> tuning = new HashMap<>();
    tuning.put("threads", threads > 0 ? threads : context.cpus());
    try (TaskMemory taken = new TaskMemory(context)) {
      long wanted = memory > 0 ? memory : share(context);
      tuning.put("memory", Math.max(taken.take(wanted), Math.min(wanted, LEAST_MEMORY)));
      return NativeLibrary.buildTask(
          table.path(), table.storageJson(), tasks.next(), Json.write(tuning), context);
    } catch (LakemarkException e) {
      throw placed(e);
    }
  }

  private long share(TaskContext context) {
    int cores = slots > 0 ? slots : Runtime.getRuntime().availableProcessors();
    int tasks = Math.max(1, cores / context.cpus());
    return Runtime.getRuntime().maxMemory() / MEMORY_SHARE / tasks;
  }

  /** The same failure with the machine where it was, unless that is the driver's. */
  private static LakemarkException placed(LakemarkException e) {
    SparkEnv here = SparkEnv.get();
    if (here == null || here.executorId().equals("driver")) {
      return e;
    }
    String host = here.blockManager().blockManagerId().host();
    return e.at("executor " + here.executorId() + " on " + host);
  }
}

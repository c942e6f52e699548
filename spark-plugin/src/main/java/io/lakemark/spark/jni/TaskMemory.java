package io.lakemark.spark.jni;

import org.apache.spark.TaskContext;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;

/**
 * What the library keeps in memory for a task, as Spark's memory manager knows it: joins, sorts and
 * aggregates of the same executor spill to make room for it.
 *
 * <p>Spark manages memory outside of the heap only where {@code spark.memory.offHeap.enabled} says
 * so; elsewhere nothing is requested, and {@code spark.executor.memoryOverhead} has to allow for
 * it.
 */
public final class TaskMemory implements AutoCloseable {
  private final MemoryConsumer consumer;

  /** Of the task that runs on this thread, which may be none. */
  public TaskMemory(TaskContext task) {
    boolean isManaged =
        task != null && task.taskMemoryManager().getTungstenMemoryMode() == MemoryMode.OFF_HEAP;
    consumer = isManaged ? new Held(task.taskMemoryManager()) : null;
  }

  /** Takes so many bytes; gives how many there were, all of them if nobody manages them. */
  public long take(long bytes) {
    return consumer == null || bytes == 0 ? bytes : consumer.acquireMemory(bytes);
  }

  /** Takes or gives back so that it has so many bytes, or as many as there are. */
  public void hold(long bytes) {
    if (consumer == null) {
      return;
    }
    long more = bytes - consumer.getUsed();
    if (more > 0) {
      consumer.acquireMemory(more);
    } else {
      consumer.freeMemory(-more);
    }
  }

  @Override
  public void close() {
    if (consumer != null) {
      consumer.freeMemory(consumer.getUsed());
    }
  }

  /** Nothing of it can be spilled. */
  private static final class Held extends MemoryConsumer {
    Held(TaskMemoryManager manager) {
      super(manager, manager.pageSizeBytes(), MemoryMode.OFF_HEAP);
    }

    @Override
    public long spill(long size, MemoryConsumer trigger) {
      return 0;
    }

    @Override
    public String toString() {
      return "memory of Lakemark's library";
    }
  }
}

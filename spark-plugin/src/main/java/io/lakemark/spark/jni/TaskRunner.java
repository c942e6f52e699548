package io.lakemark.spark.jni;

/** Runs the tasks of a build wherever they can run. The native library calls its methods. */
public interface TaskRunner {
  /** Takes a task of the plan. */
  void add(byte[] task);

  /** Runs the tasks. A failure is kept, so that what other tasks wrote can be removed first. */
  void run();

  /**
   * What a task gave.
   *
   * @param task its number, in the order in which the tasks were added
   * @return its result; null if it did not come to an end
   */
  byte[] part(int task);
}

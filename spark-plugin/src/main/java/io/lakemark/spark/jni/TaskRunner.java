package io.lakemark.spark.jni;

/**
 * Runs the tasks of a build wherever they can run. The native library calls its methods, all of
 * them on the thread that called for the build.
 */
public interface TaskRunner {
  /** What {@link #next} gives if no task came to its end in time. */
  int NONE_YET = -1;

  /** What {@link #next} gives if no task runs any more. */
  int ENDED = -2;

  /** Takes a task of the plan. */
  void add(byte[] task);

  /** Begins to run the tasks. Their failure is kept, so that what others wrote can be committed. */
  void start();

  /**
   * Waits until a task has come to its end.
   *
   * @param millis how long at most
   * @return its number, in the order in which the tasks were added; {@link #NONE_YET} or {@link
   *     #ENDED} if there is none
   */
  int next(long millis);

  /**
   * What a task gave that {@link #next} named. It is given once, and forgotten then.
   *
   * @param task its number
   */
  byte[] part(int task);
}

package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupChoice;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What a session remembers from query to query. Thread-safe; it does not keep its session alive.
 */
final class SessionMemory {
  /** So many answers are remembered, for queries that are planned again while they run. */
  private static final int ANSWERS = 64;

  private final Set<String> told = ConcurrentHashMap.newKeySet();
  private final Map<Asked, RowGroupChoice> answers = new LinkedHashMap<>();
  private volatile boolean isBroken;

  /** What one execution of a query asked of a table. */
  record Asked(String execution, MarkedTable table, ScanFilter filter) {}

  /** Whether something is to be told to the user for the first time in this session. */
  boolean isNew(String message) {
    return told.add(message);
  }

  boolean isTold(String message) {
    return told.contains(message);
  }

  /** Spark has other classes than this was compiled for: nothing more is tried. */
  void setBroken() {
    isBroken = true;
  }

  boolean isBroken() {
    return isBroken;
  }

  synchronized Optional<RowGroupChoice> answer(Asked asked) {
    return Optional.ofNullable(answers.get(asked));
  }

  synchronized void remember(Asked asked, RowGroupChoice answer) {
    answers.put(asked, answer);
    if (answers.size() > ANSWERS) {
      answers.remove(answers.keySet().iterator().next());
    }
  }
}

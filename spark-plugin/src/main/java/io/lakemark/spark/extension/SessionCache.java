package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import scala.Option;

/**
 * What a session remembers from query to query. Thread-safe; it does not keep its session alive.
 */
final class SessionCache {
  /** So many answers are remembered, for queries that are planned again while they run. */
  private static final int ANSWERS = 64;

  private final Set<String> warned = ConcurrentHashMap.newKeySet();
  private final Map<ProbeKey, RowGroupSelection> answers = new LinkedHashMap<>();

  /** For each query that is planned, which tables have buffered changes. */
  private final Map<QueryPlanningTracker, Map<IndexedRoot, Boolean>> buffered =
      Collections.synchronizedMap(new WeakHashMap<>());

  private volatile boolean isBroken;

  /** What one execution of a query probed a table for. */
  record ProbeKey(String execution, IndexedRoot table, ScanFilter filter) {}

  /** Takes note of a warning; says whether the session had not given it yet. */
  boolean addWarned(String message) {
    return warned.add(message);
  }

  boolean isWarned(String message) {
    return warned.contains(message);
  }

  /** Spark has other classes than this was compiled for: nothing more is tried. */
  void setBroken() {
    isBroken = true;
  }

  boolean isBroken() {
    return isBroken;
  }

  /**
   * Whether a table has buffered changes, as the query that this thread plans has found first.
   * Spark applies a rule many times before it is done with a plan.
   */
  boolean hasBuffered(IndexedRoot table, Predicate<IndexedRoot> look) {
    Option<QueryPlanningTracker> query = QueryPlanningTracker.get();
    return query.isEmpty()
        ? look.test(table)
        : buffered
            .computeIfAbsent(query.get(), added -> new ConcurrentHashMap<>())
            .computeIfAbsent(table, look::test);
  }

  synchronized Optional<RowGroupSelection> answer(ProbeKey key) {
    return Optional.ofNullable(answers.get(key));
  }

  synchronized void remember(ProbeKey key, RowGroupSelection answer) {
    answers.put(key, answer);
    if (answers.size() > ANSWERS) {
      answers.remove(answers.keySet().iterator().next());
    }
  }
}

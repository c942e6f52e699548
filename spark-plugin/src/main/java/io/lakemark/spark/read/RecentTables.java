package io.lakemark.spark.read;

import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Tables whose scans were planned and may be planned once more when Spark knows the keys of a join.
 *
 * <p>Nobody says when a query is over. A table is closed when the garbage collector finds that no
 * plan has it any more. It is closed in any case when many others came after it; its scan is then
 * read as it was planned.
 */
final class RecentTables {
  /** So many stay open at most; each pins a list of data files. */
  static final int MOST = 64;

  private static final Deque<WeakReference<NativeTable>> TABLES = new ArrayDeque<>();

  private RecentTables() {}

  /** Keeps a table open for a while. */
  static synchronized void keep(NativeTable table) {
    TABLES.addLast(new WeakReference<>(table));
    if (TABLES.size() > MOST) {
      NativeTable oldest = TABLES.removeFirst().get();
      if (oldest != null) {
        oldest.close();
      }
    }
  }
}

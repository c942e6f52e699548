package io.lakemark.spark.read;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The scans of one query, of which only the largest take the keys of joins at run time.
 *
 * <p>For a scan that takes keys Spark copies the other side of the join into the plan, with all the
 * copies that this side has. Where many joined scans take keys, the plan doubles with each of them
 * (SPARK-48486). A small scan gains nothing from it: Spark broadcasts its rows, and has no keys to
 * hand over.
 */
final class LargeScans {
  /** So many scans of a query take keys at most: a plan has two to this power of copies, then. */
  static final int MOST = 8;

  /** Bytes that each scan reads, in the order in which they were planned. */
  private final List<Long> sizes = new ArrayList<>();

  /** A scan's place among those of its query. */
  record Place(LargeScans scans, int number) {
    /** Whether it is the largest of them, or one of the next that are too large to be broadcast. */
    boolean isLarge(long broadcastBytes) {
      return scans.isLarge(number, broadcastBytes);
    }

    /** The same with what the session broadcasts. */
    boolean isLarge() {
      return isLarge(SQLConf.get().autoBroadcastJoinThreshold());
    }
  }

  /** Adds a scan that reads so many bytes. */
  synchronized Place add(long bytes) {
    sizes.add(bytes);
    return new Place(this, sizes.size() - 1);
  }

  private synchronized boolean isLarge(int number, long broadcastBytes) {
    long bytes = sizes.get(number);
    long larger = 0;
    for (int other = 0; other < sizes.size(); other++) {
      boolean isBefore = sizes.get(other) == bytes && other < number;
      larger += sizes.get(other) > bytes || isBefore ? 1 : 0;
    }
    return larger == 0 || (larger < MOST && bytes > broadcastBytes);
  }
}

package io.lakemark.spark.read;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The scans of one plan, of which only the largest take the keys of joins at run time.
 *
 * <p>For a scan that takes keys Spark copies the other side of the join into the plan, with all the
 * copies that this side has. Where many joined scans take keys, the plan doubles with each of them
 * (SPARK-48486). A small scan gains nothing from it: Spark broadcasts its rows, and has no keys to
 * hand over.
 *
 * <p>Equal scans take keys alike. So equal parts of a plan stay equal, and Spark runs them once. A
 * subquery is a plan of its own, so that the same subquery is planned alike wherever it stands.
 */
final class LargeScans {
  /** So many scans take keys at most: a plan has two to this power of copies, then. */
  static final int MOST = 8;

  private final int most;

  /** In the order in which they were planned. */
  private final List<Planned> scans = new ArrayList<>();

  /** The scans of a plan whose subqueries have so many scans that take keys. */
  LargeScans(int inSubqueries) {
    this.most = Math.max(1, MOST - inSubqueries);
  }

  /**
   * A scan that was planned.
   *
   * @param scan what is compared with others
   * @param bytes what it reads
   */
  private record Planned(Object scan, long bytes) {}

  /** A scan's place among those of its plan. */
  record Place(LargeScans scans, int number) {
    /** Whether it is the largest of them, or one of the next that are too large to be broadcast. */
    boolean isLarge(long broadcastBytes) {
      return scans.large(broadcastBytes).contains(number);
    }

    /** The same with what the session broadcasts. */
    boolean isLarge() {
      return isLarge(SQLConf.get().autoBroadcastJoinThreshold());
    }
  }

  /** Adds a scan that reads so many bytes. */
  synchronized Place add(Object scan, long bytes) {
    scans.add(new Planned(scan, bytes));
    return new Place(this, scans.size() - 1);
  }

  /** The numbers of those that take keys. */
  private synchronized Set<Integer> large(long broadcastBytes) {
    Comparator<Integer> bySize = Comparator.comparingLong(number -> scans.get(number).bytes());
    List<Integer> left = new ArrayList<>(IntStream.range(0, scans.size()).boxed().toList());
    left.sort(bySize.reversed());
    Set<Integer> large = new HashSet<>();
    while (!left.isEmpty() && large.size() < most) {
      Planned next = scans.get(left.get(0));
      if (!large.isEmpty() && next.bytes() <= broadcastBytes) {
        break;
      }
      List<Integer> equal =
          left.stream().filter(number -> scans.get(number).scan().equals(next.scan())).toList();
      left.removeAll(equal);
      large.addAll(equal.subList(0, Math.min(equal.size(), most - large.size())));
    }
    return large;
  }
}

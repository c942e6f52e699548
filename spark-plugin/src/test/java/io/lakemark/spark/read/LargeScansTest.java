package io.lakemark.spark.read;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class LargeScansTest {
  private static final long BROADCAST = 10;

  /** Of scans with these sizes, those that take keys. */
  private static List<Boolean> large(long... sizes) {
    return large(new LargeScans(0), LongStream.of(sizes).mapToObj(size -> new Object()), sizes);
  }

  private static List<Boolean> large(LargeScans scans, Stream<?> compared, long... sizes) {
    List<?> each = compared.toList();
    List<LargeScans.Place> places =
        IntStream.range(0, sizes.length)
            .mapToObj(number -> scans.add(each.get(number), sizes[number]))
            .toList();
    return places.stream().map(place -> place.isLarge(BROADCAST)).toList();
  }

  @Test
  void oneScanIsLargeWhateverItReads() {
    assertEquals(List.of(true), large(0));
    assertEquals(List.of(true), large(100));
  }

  @Test
  void whatSparkBroadcastsIsNot() {
    assertEquals(List.of(true, false, true, false), large(500, 10, 11, 0));
    assertEquals(List.of(false, true, false), large(3, 4, 4));
  }

  @Test
  void equalScansTakeKeysAlike() {
    assertEquals(
        List.of(true, false, true), large(new LargeScans(0), Stream.of("a", "b", "a"), 5, 4, 5));
    assertEquals(
        List.of(false, true, true, true),
        large(new LargeScans(5), Stream.of("b", "a", "a", "a"), 40, 50, 50, 50));
    // There is no room for all of them.
    assertEquals(
        List.of(true, true, false), large(new LargeScans(6), Stream.of("a", "a", "a"), 50, 50, 50));
  }

  @Test
  void scansOfSubqueriesLeaveRoomForOneAtLeast() {
    assertEquals(List.of(true, false), large(new LargeScans(99), Stream.of("a", "b"), 50, 50));
  }

  @Test
  void theLargestAreWhereThereAreMany() {
    long[] sizes = LongStream.range(0, 20).map(number -> 100 + number % 10).toArray();
    List<Boolean> large = large(sizes);
    assertEquals(LargeScans.MOST, large.stream().filter(each -> each).count());
    for (int number = 0; number < sizes.length; number++) {
      assertEquals(sizes[number] >= 106, large.get(number), "scan " + number);
    }
  }
}

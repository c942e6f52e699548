package io.lakemark.spark.read;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class LargeScansTest {
  private static final long BROADCAST = 10;

  /** Of scans with these sizes, those that take keys. */
  private static List<Boolean> large(long... sizes) {
    LargeScans scans = new LargeScans();
    List<LargeScans.Place> places = LongStream.of(sizes).mapToObj(scans::add).toList();
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
  void theLargestAreWhereThereAreMany() {
    long[] sizes = LongStream.range(0, 20).map(number -> 100 + number % 10).toArray();
    List<Boolean> large = large(sizes);
    assertEquals(LargeScans.MOST, large.stream().filter(each -> each).count());
    for (int number = 0; number < sizes.length; number++) {
      assertEquals(sizes[number] >= 106, large.get(number), "scan " + number);
    }
  }
}

package io.lakemark.spark.extension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakemark.spark.extension.SelectedRowGroups.ByteRange;
import io.lakemark.spark.extension.SelectedRowGroups.RowGroup;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

final class SelectedRowGroupsTest {
  private static final int COUNT = 8;
  private static final long BYTES = 1 << 20;
  private static final long FREE = 0;
  private static final ByteRange WHOLE = new ByteRange(0, 4 + COUNT * BYTES + 100);

  /** Row groups of one size behind four bytes of magic. */
  private static List<RowGroup> groups() {
    return IntStream.range(0, COUNT)
        .mapToObj(ordinal -> new RowGroup(4 + ordinal * BYTES, BYTES, 10, 3))
        .toList();
  }

  private static SelectedRowGroups kept(int... ordinals) {
    BitSet kept = new BitSet();
    IntStream.of(ordinals).forEach(kept::set);
    return new SelectedRowGroups(COUNT, COUNT * 10, kept);
  }

  /** The row groups that a reader of Parquet takes to be in a range. */
  private static List<Integer> read(List<ByteRange> parts, List<RowGroup> groups) {
    List<Integer> read = new ArrayList<>();
    for (ByteRange part : parts) {
      for (int ordinal = 0; ordinal < groups.size(); ordinal++) {
        long middle = groups.get(ordinal).middle();
        if (middle >= part.start() && middle < part.end()) {
          read.add(ordinal);
        }
      }
    }
    return read;
  }

  @Test
  void neighboursAreOnePart() {
    List<ByteRange> parts = kept(0, 1, 4, 7).parts(WHOLE, groups(), FREE);
    assertEquals(3, parts.size());
    assertEquals(List.of(0, 1, 4, 7), read(parts, groups()));
    assertEquals(0, parts.get(0).start());
    assertEquals(WHOLE.end(), parts.get(2).end());
  }

  @Test
  void nothingIsLeftOfASplitWithoutRowGroupsToRead() {
    ByteRange split = new ByteRange(0, 3 * BYTES);
    assertEquals(List.of(), kept(5).parts(split, groups(), FREE));
    assertEquals(List.of(), kept().parts(WHOLE, groups(), FREE));
  }

  @Test
  void aSplitOfWhichAllIsReadStaysWhole() {
    assertEquals(
        List.of(WHOLE), kept(IntStream.range(0, COUNT).toArray()).parts(WHOLE, groups(), FREE));
    ByteRange split = new ByteRange(2 * BYTES, 5 * BYTES);
    assertEquals(List.of(split), kept(1, 2, 3, 4, 5).parts(split, groups(), FREE));
  }

  @Test
  void gapsThatCostLessThanOpeningAreReadAlong() {
    List<RowGroup> wide =
        groups().stream()
            .map(group -> new RowGroup(group.start(), group.bytes(), group.rows(), 2000))
            .toList();
    assertEquals(List.of(1, 2, 3, 4), read(kept(1, 4).parts(WHOLE, wide, 3 * BYTES), wide));
    assertEquals(List.of(1, 4), read(kept(1, 4).parts(WHOLE, wide, 2 * BYTES), wide));
    // The footer of a few columns costs little, whatever Spark takes opening a file for.
    assertEquals(List.of(1, 4), read(kept(1, 4).parts(WHOLE, groups(), 100 * BYTES), groups()));
  }

  @Test
  void anotherFileIsReadWhole() {
    List<RowGroup> groups = groups();
    assertEquals(List.of(WHOLE), kept(3).parts(WHOLE, groups.subList(0, COUNT - 1), FREE));
    List<RowGroup> others = new ArrayList<>(groups);
    others.set(2, new RowGroup(groups.get(2).start(), BYTES, 11, 3));
    assertEquals(List.of(WHOLE), kept(3).parts(WHOLE, others, FREE));
  }

  @Test
  void rowGroupsThatAreNotInTheirOrderAreReadWhole() {
    List<RowGroup> groups = new ArrayList<>(groups());
    groups.set(5, new RowGroup(4, BYTES, 10, 3));
    assertEquals(List.of(WHOLE), kept(3).parts(WHOLE, groups, FREE));
  }

  @Test
  void splitsTogetherReadEachRowGroupOnce() {
    Random random = new Random(7);
    for (int round = 0; round < 2000; round++) {
      List<RowGroup> groups = new ArrayList<>();
      long start = 4;
      for (int ordinal = 0; ordinal < COUNT; ordinal++) {
        long bytes = 1L + random.nextInt(1000);
        groups.add(new RowGroup(start, bytes, 10, 1));
        start += bytes + random.nextInt(3);
      }
      int[] wanted = IntStream.range(0, COUNT).filter(each -> random.nextInt(3) == 0).toArray();
      long size = start + 50;
      long step = 1L + random.nextInt(1500);
      long openCost = random.nextInt(800);
      List<Integer> read = new ArrayList<>();
      for (long from = 0; from < size; from += step) {
        ByteRange split = new ByteRange(from, Math.min(size, from + step));
        for (ByteRange part : kept(wanted).parts(split, groups, openCost)) {
          assertTrue(split.start() <= part.start() && part.end() <= split.end());
          assertTrue(part.start() < part.end());
          read.addAll(read(List.of(part), groups));
        }
      }
      assertEquals(read.stream().distinct().toList(), read, "none twice");
      assertTrue(read.containsAll(IntStream.of(wanted).boxed().toList()), "all that are wanted");
      if (openCost == 0) {
        assertEquals(IntStream.of(wanted).boxed().toList(), read);
      }
    }
  }
}

package io.lakemark.spark.extension;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/**
 * The row groups of a file that need be read. It travels with each split of the file.
 *
 * @param count row groups that the file has
 * @param rows rows that it has
 * @param kept those to be read, by ordinal
 */
record SelectedRowGroups(int count, long rows, BitSet kept) implements Serializable {
  /** Its name among the metadata of a file. */
  static final String NAME = "lakemark_row_groups";

  /** Bytes that are read in the time that it takes to open a file, without its footer. */
  private static final long OPENING = 256 << 10;

  /** The same for each column of each row group that the footer describes. */
  private static final long DESCRIBING = 256;

  /**
   * A row group as the file's footer has it.
   *
   * @param start where it begins in the file
   * @param bytes its length
   * @param rows its rows
   * @param columns its columns
   */
  record RowGroup(long start, long bytes, long rows, int columns) {
    /** Parquet's readers take a row group to be in the split that has this byte. */
    long middle() {
      return start + bytes / 2;
    }
  }

  /**
   * A part of a split.
   *
   * @param start its first byte
   * @param end the byte after its last one
   */
  record ByteRange(long start, long end) {}

  /**
   * The parts of a split that have the row groups to be read, and no others unless opening the file
   * again costs more. The whole split if the file is not the one that the indexes know.
   *
   * @param split the split
   * @param groups what the footer says
   * @param openCost bytes that opening a file is taken to cost at most
   */
  List<ByteRange> parts(ByteRange split, List<RowGroup> groups, long openCost) {
    if (!isOf(groups)) {
      return List.of(split);
    }
    long columns = groups.stream().mapToLong(RowGroup::columns).sum();
    long gap = Math.min(openCost, OPENING + DESCRIBING * columns);
    List<ByteRange> parts = new ArrayList<>();
    int first = -1;
    int last = -1;
    long between = 0;
    for (int ordinal = 0; ordinal < groups.size(); ordinal++) {
      long middle = groups.get(ordinal).middle();
      if (middle < split.start() || middle >= split.end()) {
        continue;
      }
      if (!kept.get(ordinal)) {
        between += groups.get(ordinal).bytes();
        continue;
      }
      if (first >= 0 && last + 1 < ordinal && between >= gap) {
        parts.add(part(split, groups, first, last));
        first = -1;
      }
      first = first < 0 ? ordinal : first;
      last = ordinal;
      between = 0;
    }
    if (first >= 0) {
      parts.add(part(split, groups, first, last));
    }
    return parts;
  }

  /** Whether the file has these row groups, in the order of their places. */
  private boolean isOf(List<RowGroup> groups) {
    long before = -1;
    for (RowGroup group : groups) {
      if (group.middle() <= before) {
        return false;
      }
      before = group.middle();
    }
    return groups.size() == count && groups.stream().mapToLong(RowGroup::rows).sum() == rows;
  }

  /**
   * From one row group to another: all that is not a neighbour's middle, however it is computed.
   */
  private static ByteRange part(ByteRange split, List<RowGroup> groups, int first, int last) {
    long start = first == 0 ? split.start() : groups.get(first - 1).middle() + 1;
    long end = last + 1 == groups.size() ? split.end() : groups.get(last + 1).middle();
    return new ByteRange(Math.max(split.start(), start), Math.min(split.end(), end));
  }
}

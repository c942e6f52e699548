package io.lakemark.spark.read;

/**
 * What a statement that changes rows has seen of the table.
 *
 * @param point the state, as {@link NativeTable#readPoint} numbers it
 * @param unknown what the table has in it that Spark does not know
 */
public record ReadState(long point, UnknownColumns unknown) {
  /** Of two scans the one counts that saw least. */
  public ReadState with(ReadState other) {
    return new ReadState(Math.min(point, other.point), unknown.with(other.unknown));
  }
}

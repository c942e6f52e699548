package io.lakemark.spark.read;

import io.lakemark.spark.LakemarkException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * An Arrow vector without children, read straight from its memory, as Spark's own vectors outside
 * of the heap are.
 *
 * <p>{@link org.apache.spark.sql.vectorized.ArrowColumnVector} calls an accessor for each value,
 * which checks each place twice and makes each decimal by way of two other numbers. A scan that
 * reads everything was a quarter slower for it than Spark's own. Here, as in Spark's own vectors,
 * no place is checked: Spark reads rows of the batch only. The memory belongs to the vector, and
 * that to its stream.
 */
final class FlatColumnVector extends ColumnVector {
  private final int nulls;
  private final long validity;
  private final long values;

  /** Of texts and bytes: where each value begins in {@code values}; else 0. */
  private final long offsets;

  private FlatColumnVector(FieldVector vector, DataType type, long offsets) {
    super(type);
    this.nulls = vector.getNullCount();
    this.validity = nulls == 0 ? 0 : vector.getValidityBufferAddress();
    this.values = vector.getDataBufferAddress();
    this.offsets = offsets;
  }

  /** The vector as Spark reads it, which has the type that Spark planned with. */
  static ColumnVector of(FieldVector vector, DataType type) {
    if (vector instanceof BaseFixedWidthVector) {
      return new FlatColumnVector(vector, type, 0);
    }
    if (vector instanceof BaseVariableWidthVector) {
      return new FlatColumnVector(vector, type, vector.getOffsetBufferAddress());
    }
    return new StreamColumnVector(vector);
  }

  /** The memory goes with the stream. */
  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public int numNulls() {
    return nulls;
  }

  @Override
  public boolean isNullAt(int row) {
    return nulls > 0 && !bit(validity, row);
  }

  private static boolean bit(long bits, int row) {
    return (Platform.getByte(null, bits + (row >> 3)) >> (row & 7) & 1) != 0;
  }

  @Override
  public boolean getBoolean(int row) {
    return bit(values, row);
  }

  @Override
  public byte getByte(int row) {
    return Platform.getByte(null, values + row);
  }

  @Override
  public short getShort(int row) {
    return Platform.getShort(null, values + 2L * row);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, values + 4L * row);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, values + 8L * row);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, values + 4L * row);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, values + 8L * row);
  }

  /** Arrow has 16 bytes for each, the lowest first; up to 18 digits are in the lower half alone. */
  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (isNullAt(row)) {
      return null;
    }
    long place = values + 16L * row;
    long low = Platform.getLong(null, place);
    if (precision <= Decimal.MAX_LONG_DIGITS()) {
      return Decimal.createUnsafe(low, precision, scale);
    }
    long high = Platform.getLong(null, place + 8);
    byte[] unscaled = ByteBuffer.allocate(16).putLong(high).putLong(low).array();
    return Decimal.apply(new BigDecimal(new BigInteger(unscaled), scale), precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    int end = Platform.getInt(null, offsets + 4L * (row + 1));
    return UTF8String.fromAddress(null, values + start, end - start);
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    byte[] bytes = new byte[Platform.getInt(null, offsets + 4L * (row + 1)) - start];
    Platform.copyMemory(null, values + start, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw noChildren();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw noChildren();
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw noChildren();
  }

  private LakemarkException noChildren() {
    return new LakemarkException.Internal("values of " + type.catalogString() + " have no parts");
  }
}

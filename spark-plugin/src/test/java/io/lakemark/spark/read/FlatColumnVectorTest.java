package io.lakemark.spark.read;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.function.IntConsumer;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.NullVector;
import org.apache.arrow.vector.SmallIntVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Each value is the one that Spark's own vector over the same memory gives. */
class FlatColumnVectorTest {
  private static final int ROWS = 37;
  private static final long[] NUMBERS = {0, 1, -1, 77, Long.MAX_VALUE, Long.MIN_VALUE, 1L << 33};

  private final BufferAllocator allocator = new RootAllocator();

  @AfterEach
  void nothingIsLeft() {
    allocator.close();
  }

  private interface Getter {
    Object get(ColumnVector vector, int row);
  }

  private static long number(int row) {
    return NUMBERS[row % NUMBERS.length];
  }

  /** Fills all rows but each third, then all rows, then none, and compares. */
  private void check(FieldVector vector, DataType type, IntConsumer fill, Getter getter) {
    try (vector) {
      for (int skipped : new int[] {3, ROWS + 1, 1}) {
        vector.reset();
        vector.allocateNew();
        int nulls = 0;
        for (int row = 0; row < ROWS; row++) {
          if (row % skipped == skipped - 1) {
            nulls++;
          } else {
            fill.accept(row);
          }
        }
        vector.setValueCount(ROWS);
        ColumnVector ours =
            assertInstanceOf(FlatColumnVector.class, FlatColumnVector.of(vector, type));
        ColumnVector sparks = new ArrowColumnVector(vector);
        assertEquals(nulls, ours.numNulls());
        assertEquals(nulls > 0, ours.hasNull());
        for (int row = 0; row < ROWS; row++) {
          assertEquals(sparks.isNullAt(row), ours.isNullAt(row), "row " + row);
          if (!ours.isNullAt(row)) {
            assertEquals(getter.get(sparks, row), getter.get(ours, row), "row " + row);
          }
        }
      }
    }
  }

  @Test
  void numbersOfEachWidth() {
    TinyIntVector bytes = new TinyIntVector("v", allocator);
    check(
        bytes,
        DataTypes.ByteType,
        row -> bytes.setSafe(row, (byte) number(row)),
        ColumnVector::getByte);
    SmallIntVector shorts = new SmallIntVector("v", allocator);
    check(
        shorts,
        DataTypes.ShortType,
        row -> shorts.setSafe(row, (short) number(row)),
        ColumnVector::getShort);
    IntVector ints = new IntVector("v", allocator);
    check(
        ints,
        DataTypes.IntegerType,
        row -> ints.setSafe(row, (int) number(row)),
        ColumnVector::getInt);
    BigIntVector longs = new BigIntVector("v", allocator);
    check(longs, DataTypes.LongType, row -> longs.setSafe(row, number(row)), ColumnVector::getLong);
    Float4Vector floats = new Float4Vector("v", allocator);
    check(
        floats, DataTypes.FloatType, row -> floats.setSafe(row, -row / 3f), ColumnVector::getFloat);
    Float8Vector doubles = new Float8Vector("v", allocator);
    check(
        doubles,
        DataTypes.DoubleType,
        row -> doubles.setSafe(row, row / 7d),
        ColumnVector::getDouble);
  }

  @Test
  void flagsDaysAndMoments() {
    BitVector flags = new BitVector("v", allocator);
    check(
        flags,
        DataTypes.BooleanType,
        row -> flags.setSafe(row, row % 5 % 2),
        ColumnVector::getBoolean);
    DateDayVector days = new DateDayVector("v", allocator);
    check(days, DataTypes.DateType, row -> days.setSafe(row, row - 20_000), ColumnVector::getInt);
    TimeStampMicroVector moments = new TimeStampMicroVector("v", allocator);
    check(
        moments,
        DataTypes.TimestampNTZType,
        row -> moments.setSafe(row, number(row)),
        ColumnVector::getLong);
  }

  @Test
  void decimalsOfFewDigitsAndOfMany() {
    for (int precision : new int[] {5, 9, 18, 19, 38}) {
      DecimalVector decimals = new DecimalVector("v", allocator, precision, 2);
      BigDecimal largest = BigDecimal.TEN.pow(precision).subtract(BigDecimal.ONE).movePointLeft(2);
      BigDecimal[] values = {
        largest,
        largest.negate(),
        new BigDecimal("0.00"),
        new BigDecimal("-0.01"),
        new BigDecimal("7.25")
      };
      check(
          decimals,
          DataTypes.createDecimalType(precision, 2),
          row -> decimals.setSafe(row, values[row % values.length]),
          (vector, row) -> vector.getDecimal(row, precision, 2));
    }
  }

  @Test
  void textsAndBytes() {
    String[] values = {"", "a", "Zürich", "a text that is longer than the others"};
    VarCharVector texts = new VarCharVector("v", allocator);
    check(
        texts,
        DataTypes.StringType,
        row -> texts.setSafe(row, values[row % values.length].getBytes(StandardCharsets.UTF_8)),
        ColumnVector::getUTF8String);
    VarBinaryVector bytes = new VarBinaryVector("v", allocator);
    check(
        bytes,
        DataTypes.BinaryType,
        row -> bytes.setSafe(row, values[row % values.length].getBytes(StandardCharsets.UTF_8)),
        (vector, row) -> new String(vector.getBinary(row), StandardCharsets.UTF_8));
  }

  @Test
  void noValueIsNull() {
    try (VarCharVector texts = new VarCharVector("v", allocator);
        VarBinaryVector bytes = new VarBinaryVector("v", allocator);
        DecimalVector decimals = new DecimalVector("v", allocator, 9, 2)) {
      for (FieldVector vector : new FieldVector[] {texts, bytes, decimals}) {
        vector.allocateNew();
        vector.setValueCount(1);
      }
      assertNull(FlatColumnVector.of(texts, DataTypes.StringType).getUTF8String(0));
      assertNull(FlatColumnVector.of(bytes, DataTypes.BinaryType).getBinary(0));
      ColumnVector decimal = FlatColumnVector.of(decimals, DataTypes.createDecimalType(9, 2));
      assertNull(decimal.getDecimal(0, 9, 2));
    }
  }

  @Test
  void othersStaySparks() {
    try (NullVector nothing = new NullVector("v")) {
      nothing.setValueCount(2);
      ColumnVector vector = FlatColumnVector.of(nothing, DataTypes.NullType);
      assertInstanceOf(StreamColumnVector.class, vector);
      assertArrayEquals(
          new boolean[] {true, true}, new boolean[] {vector.isNullAt(0), vector.isNullAt(1)});
    }
  }
}

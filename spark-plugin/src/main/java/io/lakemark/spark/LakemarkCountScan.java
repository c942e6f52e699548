package io.lakemark.spark;

import java.util.Arrays;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A count that the marks answered: one row, no job. */
final class LakemarkCountScan implements LocalScan {
  private final String description;
  private final long count;
  private final int columns;

  /**
   * @param description the scan as users see it in plans
   * @param count the answer
   * @param columns how often the query asks for it
   */
  LakemarkCountScan(String description, long count, int columns) {
    this.description = description;
    this.count = count;
    this.columns = columns;
  }

  @Override
  public StructType readSchema() {
    return new StructType(
        IntStream.range(0, columns)
            .mapToObj(at -> DataTypes.createStructField("count_" + at, DataTypes.LongType, false))
            .toArray(StructField[]::new));
  }

  @Override
  public String description() {
    return description + " counted from the index";
  }

  @Override
  public InternalRow[] rows() {
    Object[] values = new Object[columns];
    Arrays.fill(values, count);
    return new InternalRow[] {new GenericInternalRow(values)};
  }
}

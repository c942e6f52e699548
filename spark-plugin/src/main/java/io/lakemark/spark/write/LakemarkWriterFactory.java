package io.lakemark.spark.write;

import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.read.UnknownColumns;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Travels to the executors and makes a writer for each attempt of a task.
 *
 * @param table the table that is changed
 * @param operation what is done with rows of which nothing else is said
 * @param columns the columns of rows; none if there are keys alone
 * @param key the columns that name a row; none if rows name themselves
 * @param unknown what the table has that the rows lack because Spark does not know it
 */
record LakemarkWriterFactory(
    LakemarkOptions table,
    LakemarkChange.Operation operation,
    StructType columns,
    StructType key,
    UnknownColumns unknown)
    implements DeltaWriterFactory {
  @Override
  public DeltaWriter<InternalRow> createWriter(int partition, long task) {
    return new LakemarkWriter(this);
  }
}

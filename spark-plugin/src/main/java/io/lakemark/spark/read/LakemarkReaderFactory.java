package io.lakemark.spark.read;

import io.lakemark.spark.LakemarkException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Travels to the executors and opens splits there. */
final class LakemarkReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final String scan;
  private final StructType columns;

  LakemarkReaderFactory(String scan, StructType columns) {
    this.scan = scan;
    this.columns = columns;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new LakemarkBatchReader(scan, (LakemarkInputPartition) partition, columns);
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new LakemarkException.Internal("rows were asked for where batches were promised");
  }
}

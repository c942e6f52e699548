package io.lakemark.spark.write;

import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.NativeLibrary;
import io.lakemark.spark.jni.TaskMemory;
import io.lakemark.spark.write.LakemarkChange.Operation;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.c.ArrowArray;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/**
 * Rows of one operation that a task writes aside: sorted by key, in files of the table's store that
 * count only once the driver names them.
 */
final class StagedRows implements AutoCloseable {
  /** Rows that are handed over at a time. */
  private static final int BATCH_ROWS = 4096;

  private final TaskMemory memory = new TaskMemory(TaskContext.get());
  private final BufferAllocator allocator;
  private final VectorSchemaRoot root;
  private final ArrowWriter writer;
  private final long staging;
  private int rows;
  private boolean isClosed;

  StagedRows(LakemarkOptions table, Operation operation, StructType columns) {
    NativeLibrary.load();
    staging = NativeLibrary.beginStaging(table.path(), table.storageJson(), operation.text());
    allocator = ArrowUtils.rootAllocator().newChildAllocator("lakemark-write", 0, Long.MAX_VALUE);
    root = VectorSchemaRoot.create(StagedSchema.of(columns), allocator);
    writer = ArrowWriter.create(root);
  }

  void add(InternalRow row) {
    writer.write(row);
    rows++;
    if (rows == BATCH_ROWS) {
      handOver();
    }
  }

  private void handOver() {
    writer.finish();
    try (ArrowArray array = ArrowArray.allocateNew(allocator);
        ArrowSchema schema = ArrowSchema.allocateNew(allocator)) {
      try {
        Data.exportVectorSchemaRoot(allocator, root, null, array, schema);
        memory.hold(NativeLibrary.stage(staging, array.memoryAddress(), schema.memoryAddress()));
      } finally {
        // Empty already, if the native side got them.
        array.release();
        schema.release();
      }
    }
    writer.reset();
    rows = 0;
  }

  /** Makes the rows durable; gives what the driver names their files by. */
  List<String> finish() {
    if (rows > 0) {
      handOver();
    }
    List<String> names = new ArrayList<>();
    Json.read(NativeLibrary.finishStaging(staging)).forEach(name -> names.add(name.toString()));
    return names;
  }

  /** Gives the memory back; rows that were not finished are gone. */
  @Override
  public void close() {
    if (isClosed) {
      return;
    }
    isClosed = true;
    NativeLibrary.abandonStaging(staging);
    memory.close();
    root.close();
    allocator.close();
  }
}

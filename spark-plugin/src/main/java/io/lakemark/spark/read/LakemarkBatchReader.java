package io.lakemark.spark.read;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.jni.NativeLibrary;
import io.lakemark.spark.jni.NativeStream;
import io.lakemark.spark.jni.TaskMemory;
import io.lakemark.spark.read.LakemarkInputPartition.Input;
import java.io.IOException;
import java.util.Iterator;
import org.apache.arrow.c.ArrowArrayStream;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The batches of one split, input by input. Vectors belong to the root of their input's stream and
 * are closed with it, never one by one.
 */
final class LakemarkBatchReader implements PartitionReader<ColumnarBatch> {
  private static final long ACCOUNTED = -1;

  private final String scan;
  private final StructType columns;
  private final Iterator<Input> inputs;
  private final TaskMemory memory = new TaskMemory(TaskContext.get());
  private NativeStream stream;

  /** Bytes that reading takes and that are not accounted yet, or {@link #ACCOUNTED}. */
  private long held;

  private boolean checked;
  private ColumnarBatch batch;

  LakemarkBatchReader(String scan, LakemarkInputPartition split, StructType columns) {
    this.scan = scan;
    this.columns = columns;
    this.inputs = split.inputs().iterator();
    NativeLibrary.load();
    open(inputs.next());
  }

  private void open(Input input) {
    stream =
        new NativeStream(
            (ArrowArrayStream out) ->
                held =
                    NativeLibrary.openInput(
                        scan, input.body(), input.attachment(), out.memoryAddress()));
    checked = false;
  }

  @Override
  public boolean next() throws IOException {
    account();
    while (!stream.next()) {
      if (!inputs.hasNext()) {
        return false;
      }
      close(stream);
      open(inputs.next());
      account();
    }
    VectorSchemaRoot root = stream.root();
    check(root);
    ColumnVector[] vectors = new ColumnVector[columns.length()];
    for (int at = 0; at < vectors.length; at++) {
      StructField column = columns.apply(at);
      vectors[at] = FlatColumnVector.of(root.getVector(at), column.dataType());
      checkNulls(column, vectors[at].numNulls());
    }
    batch = new ColumnarBatch(vectors, root.getRowCount());
    return true;
  }

  /** If there is less, less is accounted: a reader needs what it needs. */
  private void account() {
    if (held != ACCOUNTED) {
      memory.hold(held);
      held = ACCOUNTED;
    }
  }

  /** Spark does not look for NULL in a key, so that it would take one for some value. */
  private static void checkNulls(StructField column, int nulls) {
    if (nulls > 0 && !column.nullable()) {
      throw new LakemarkException.Corrupt(
          "the data have rows without a value for "
              + column.name()
              + ", which is part of the table's key; take them out of the data files");
    }
  }

  /**
   * Spark reads vectors by the types that it planned with, so types that differ would give garbage.
   */
  private void check(VectorSchemaRoot root) {
    if (checked) {
      return;
    }
    String found = ArrowUtils.fromArrowSchema(root.getSchema()).catalogString();
    if (!found.equals(Collations.without(columns).catalogString())) {
      throw new LakemarkException.SchemaMismatch(
          "the query expects "
              + columns.catalogString()
              + " and the table has "
              + found
              + "; load the table again");
    }
    checked = true;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    try (memory) {
      close(stream);
    }
  }

  /** Once only: a reader whose next input cannot be opened is closed all the same. */
  private void close(NativeStream read) throws IOException {
    stream = null;
    if (read != null) {
      read.close();
    }
  }
}

package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.NativeStream;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Rows that are there before anything runs: counts and other aggregates that the indexes gave, rows
 * of walks, and reports.
 *
 * @param schema their columns
 * @param rows the rows
 */
@SuppressWarnings("ArrayRecordComponent") // Spark takes an array, and nobody compares these.
public record LakemarkLocalRows(StructType schema, InternalRow[] rows) {

  /** One row that holds the same count in every column. */
  static LakemarkLocalRows counts(long count, int columns) {
    StructType schema = new StructType();
    Object[] values = new Object[columns];
    for (int at = 0; at < columns; at++) {
      schema = schema.add("count_" + at, DataTypes.LongType, false);
      values[at] = count;
    }
    return new LakemarkLocalRows(schema, new InternalRow[] {new GenericInternalRow(values)});
  }

  /** All rows of a stream, copied out of it. */
  public static LakemarkLocalRows of(NativeStream stream) {
    StructType schema = ArrowUtils.fromArrowSchema(stream.root().getSchema());
    List<InternalRow> rows = new ArrayList<>();
    while (stream.next()) {
      VectorSchemaRoot root = stream.root();
      ColumnVector[] vectors = new ColumnVector[schema.length()];
      for (int at = 0; at < vectors.length; at++) {
        vectors[at] = new StreamColumnVector(root.getVector(at));
      }
      try (ColumnarBatch batch = new ColumnarBatch(vectors, root.getRowCount())) {
        for (Iterator<InternalRow> each = batch.rowIterator(); each.hasNext(); ) {
          rows.add(each.next().copy());
        }
      }
    }
    return new LakemarkLocalRows(schema, rows.toArray(new InternalRow[0]));
  }

  /** The scan that gives these rows. */
  public LocalScan scan(String description) {
    return new RowsScan(this, description);
  }

  /** The scan that gives these rows in the place of others. */
  public LocalScan scan(PushedDown pushed) {
    return new AnsweredScan(this, pushed);
  }

  private static class RowsScan implements LocalScan {
    private final LakemarkLocalRows answer;
    private final String description;

    RowsScan(LakemarkLocalRows answer, String description) {
      this.answer = answer;
      this.description = description;
    }

    @Override
    public StructType readSchema() {
      return answer.schema;
    }

    @Override
    public String description() {
      return description;
    }

    @Override
    public InternalRow[] rows() {
      return answer.rows;
    }
  }

  private static final class AnsweredScan extends RowsScan implements ExplainSource {
    private final PushedDown pushed;
    private final int rows;

    AnsweredScan(LakemarkLocalRows answer, PushedDown pushed) {
      super(answer, pushed.line() + " answered from the index");
      this.pushed = pushed;
      this.rows = answer.rows.length;
    }

    @Override
    public ObjectNode explainJson() {
      ObjectNode facts = pushed.facts().put("splits", 0).put("bytes", 0).put("rows", rows);
      facts.put("rows_index_only", 0).putNull("covering_index");
      facts.put("rows_buffered", 0).putArray("runtime_filters");
      return facts.putNull("report").putNull("report_text");
    }
  }
}

package io.lakemark.spark.write;

import io.lakemark.spark.write.LakemarkChange.Operation;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The changes of one task: staged by operation, and nothing more until the driver names them. */
final class LakemarkWriter implements DeltaWriter<InternalRow> {
  /**
   * What a task reports to the driver.
   *
   * @param staged its files, as the native side names them
   */
  record Message(List<String> staged) implements WriterCommitMessage {}

  private final LakemarkWriterFactory of;
  private final int[] keyInRow;
  private final Map<Operation, StagedRows> staged = new EnumMap<>(Operation.class);
  private List<String> finished = List.of();

  LakemarkWriter(LakemarkWriterFactory of) {
    this.of = of;
    StructType key = of.key();
    this.keyInRow = new int[key.length()];
    for (int at = 0; at < keyInRow.length; at++) {
      // A DELETE has no rows beside the keys.
      keyInRow[at] = of.columns().isEmpty() ? -1 : of.columns().fieldIndex(key.apply(at).name());
    }
  }

  /** Rows of a statement or data frame that does one thing with all of them. */
  @Override
  public void write(InternalRow row) {
    add(of.operation(), of.columns(), row);
  }

  @Override
  public void insert(InternalRow row) {
    add(Operation.INSERT, of.columns(), row);
  }

  @Override
  public void delete(InternalRow metadata, InternalRow id) {
    add(Operation.DELETE, of.key(), id);
  }

  /**
   * A row that gets another key gives up its old one, which another row may get. Columns that Spark
   * does not know keep what they have.
   */
  @Override
  public void update(InternalRow metadata, InternalRow id, InternalRow row) {
    if (!hasKey(row, id)) {
      of.unknown().checkMove(of.table());
      delete(metadata, id);
      insert(row);
    } else if (of.unknown().isEmpty()) {
      add(Operation.UPSERT, of.columns(), row);
    } else if (of.columns().length() > keyInRow.length) {
      of.unknown().checkUpdate(of.table());
      add(Operation.UPDATE, of.columns(), row);
    }
  }

  private boolean hasKey(InternalRow row, InternalRow id) {
    for (int at = 0; at < keyInRow.length; at++) {
      StructField field = of.key().apply(at);
      DataType type = field.dataType();
      if (!Objects.equals(row.get(keyInRow[at], type), id.get(at, type))) {
        return false;
      }
    }
    return true;
  }

  private void add(Operation operation, StructType columns, InternalRow row) {
    staged.computeIfAbsent(operation, each -> new StagedRows(of.table(), each, columns)).add(row);
  }

  @Override
  public WriterCommitMessage commit() {
    List<String> names = new ArrayList<>();
    finished = names;
    staged.values().forEach(rows -> names.addAll(rows.finish()));
    return new Message(List.copyOf(names));
  }

  /** Also called after a commit that the driver did not allow. */
  @Override
  public void abort() {
    close();
    LakemarkWrite.discard(of.table(), finished);
  }

  @Override
  public void close() {
    staged.values().forEach(StagedRows::close);
    staged.clear();
  }
}

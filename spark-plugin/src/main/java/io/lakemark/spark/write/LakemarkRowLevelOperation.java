package io.lakemark.spark.write;

import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.read.LakemarkScan;
import io.lakemark.spark.read.LakemarkScanBuilder;
import io.lakemark.spark.read.ReadState;
import io.lakemark.spark.read.RowsForChange;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One {@code UPDATE}, {@code DELETE} or {@code MERGE}. A scan finds the rows, and their key names
 * them. A key that somebody changes after the scan was planned makes the statement a conflict.
 */
public final class LakemarkRowLevelOperation implements RowLevelOperation, SupportsDelta {
  private final LakemarkOptions table;
  private final StructType schema;
  private final List<String> key;
  private final Command command;
  private Optional<ReadState> read = Optional.empty();

  /** For a statement over a table whose rows the key tells apart. */
  public LakemarkRowLevelOperation(
      LakemarkOptions table, StructType schema, List<String> key, Command command) {
    this.table = table;
    this.schema = schema;
    this.key = key;
    this.command = command;
  }

  @Override
  public Command command() {
    return command;
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    RowsForChange change = new RowsForChange(schema, exact(), this::saw);
    return new LakemarkScanBuilder(
        table.forQuery(options), schema, filterable(), Optional.of(change));
  }

  /** A {@code DELETE} goes on with keys alone; the others write back whatever they read. */
  private List<String> exact() {
    return command == Command.DELETE ? key : List.of(schema.fieldNames());
  }

  /**
   * The key, if it is one column: Spark of 4.2 and later requests the keys of the rows that match
   * before it reads whole rows, and of several columns it could not hand them to the scan.
   */
  private Set<String> filterable() {
    return key.size() == 1 ? Set.copyOf(key) : Set.of();
  }

  private synchronized void saw(ReadState state) {
    read = Optional.of(read.map(state::with).orElse(state));
  }

  private synchronized Optional<ReadState> read() {
    return read;
  }

  /** Spark plans the scan, if there is one, before it runs anything. */
  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return LakemarkWrite.builder(table, info, this::read);
  }

  @Override
  public NamedReference[] rowId() {
    return key.stream().map(LakemarkScan::reference).toArray(NamedReference[]::new);
  }
}

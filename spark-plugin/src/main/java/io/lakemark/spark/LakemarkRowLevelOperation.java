package io.lakemark.spark;

import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One {@code UPDATE}, {@code DELETE} or {@code MERGE}. Rows are found by a scan and named by their
 * key; a key that somebody changes after the scan was planned makes the statement a conflict.
 */
final class LakemarkRowLevelOperation implements RowLevelOperation, SupportsDelta {
  private final LakemarkOptions table;
  private final StructType schema;
  private final List<String> key;
  private final Command command;
  private OptionalLong readAt = OptionalLong.empty();

  LakemarkRowLevelOperation(
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
    return new LakemarkScanBuilder(table.forQuery(options), schema, this::saw);
  }

  /** Of several scans the one counts that saw least. */
  private synchronized void saw(long sequence) {
    readAt = OptionalLong.of(Math.min(sequence, readAt.orElse(sequence)));
  }

  private synchronized OptionalLong readAt() {
    return readAt;
  }

  /** Spark plans the scan, if there is one, before it runs anything. */
  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return LakemarkWrite.builder(table, info, this::readAt);
  }

  @Override
  public NamedReference[] rowId() {
    return key.stream()
        .map(name -> Expressions.column('`' + name.replace("`", "``") + '`'))
        .toArray(NamedReference[]::new);
  }
}

package io.lakemark.spark.write;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.Maintenance;
import io.lakemark.spark.read.ReadState;
import io.lakemark.spark.read.UnknownColumns;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.spark.sql.RuntimeConfig;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/**
 * The changes of one statement, on the driver.
 *
 * <p>Tasks stage their rows in the table's store, sorted by key. What the attempts staged that
 * Spark accepted is merged into one run, a part at a time, so that the driver never keeps all of it
 * in memory. It is one call, which is made as a whole or not at all. Whatever failed, was tried
 * again or ran twice has left files that nobody names.
 */
public final class LakemarkWrite implements DeltaWrite, DeltaBatchWrite {
  private final LakemarkOptions table;
  private final LakemarkChange change;
  private final RuntimeConfig session = SparkSession.active().conf();
  private final LogicalWriteInfo info;
  private final Supplier<Optional<ReadState>> read;

  private LakemarkWrite(
      LakemarkOptions table, LogicalWriteInfo info, Supplier<Optional<ReadState>> read) {
    this.table = table;
    this.change = LakemarkChange.of(info.options(), session);
    this.info = info;
    this.read = read;
  }

  /**
   * A builder as Spark needs one.
   *
   * @param read what the statement has seen of the table by the time that its tasks have run, if
   *     what it does depends on that
   */
  public static DeltaWriteBuilder builder(
      LakemarkOptions table, LogicalWriteInfo info, Supplier<Optional<ReadState>> read) {
    LakemarkWrite write = new LakemarkWrite(table, info, read);
    return new DeltaWriteBuilder() {
      @Override
      public DeltaWrite build() {
        return write;
      }
    };
  }

  @Override
  public String description() {
    return table.description();
  }

  @Override
  public DeltaBatchWrite toBatch() {
    return this;
  }

  @Override
  public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
    return new LakemarkWriterFactory(
        table,
        change.operation(),
        info.schema(),
        info.rowIdSchema().orElseGet(StructType::new),
        read.get().map(ReadState::unknown).orElse(UnknownColumns.NONE));
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    Map<String, Object> call = new HashMap<>();
    call.put("staged", nodes(staged(messages)));
    read.get().ifPresent(state -> call.put("read", state.point()));
    if (change.application() != null) {
      call.put("txn_app_id", change.application());
      call.put("txn_version", change.number());
    }
    Maintenance.run(table, "write", call);
    change.forget(session);
  }

  /** Messages of tasks that did not end are null. */
  @Override
  public void abort(WriterCommitMessage[] messages) {
    discard(table, staged(messages));
  }

  private static List<String> staged(WriterCommitMessage[] messages) {
    return Arrays.stream(messages)
        .filter(Objects::nonNull)
        .flatMap(message -> ((LakemarkWriter.Message) message).staged().stream())
        .toList();
  }

  private static List<JsonNode> nodes(List<String> staged) {
    return staged.stream().map(Json::read).toList();
  }

  /** Removes what was staged and will not be named. */
  static void discard(LakemarkOptions table, List<String> staged) {
    if (!staged.isEmpty()) {
      Maintenance.run(table, "discard_staged", Map.of("staged", nodes(staged)));
    }
  }
}

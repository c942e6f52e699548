package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.NativeLibrary;
import io.lakemark.spark.jni.NativeStream;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.LongFunction;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.CDataDictionaryProvider;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/**
 * A table in Rust, pinned at the state that it had when it was opened.
 *
 * <p>Close it. Spark abandons some query plans without a word; for those a cleaner closes the table
 * when the garbage collector finds it unused. Thread-safe: a close waits for calls that are under
 * way, and calls after it fail.
 */
public final class NativeTable implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  /** Where the native side has the schema that Spark wrote into the files. */
  private static final String SPARK_SCHEMA = "lakemark.spark_schema";

  private final Handle handle;
  private final Cleaner.Cleanable cleanable;

  private NativeTable(long address) {
    this.handle = new Handle(address);
    this.cleanable = CLEANER.register(this, handle);
  }

  /** Opens a table and pins its newest state, or the version that the options name. */
  public static NativeTable open(LakemarkOptions options) {
    NativeLibrary.load();
    return new NativeTable(
        NativeLibrary.openTable(
            options.path(),
            options.storageJson(),
            options.useIndex(),
            options.version(),
            options.maxStaleness()));
  }

  /** The table's columns with Spark's types, and with the collations that Spark gave them. */
  public StructType schema() {
    Schema schema = stored();
    StructType columns = ArrowUtils.fromArrowSchema(schema);
    String said = schema.getCustomMetadata().get(SPARK_SCHEMA);
    return said == null ? columns : Collations.of(columns, said);
  }

  /** The table's columns as its files have them, which know no collations. */
  StructType storedSchema() {
    return ArrowUtils.fromArrowSchema(stored());
  }

  private Schema stored() {
    try (BufferAllocator allocator =
            ArrowUtils.rootAllocator().newChildAllocator("lakemark-schema", 0, Long.MAX_VALUE);
        ArrowSchema schema = ArrowSchema.allocateNew(allocator);
        CDataDictionaryProvider dictionaries = new CDataDictionaryProvider()) {
      handle.call(
          address -> {
            NativeLibrary.schema(address, schema.memoryAddress());
            return null;
          });
      return Data.importSchema(allocator, schema, dictionaries);
    }
  }

  /**
   * A number for the pinned state, by which a write names what it has read: greater than those
   * before; none if the table takes no changes.
   */
  OptionalLong readPoint() {
    long point = handle.call(NativeLibrary::readPoint);
    return point < 0 ? OptionalLong.empty() : OptionalLong.of(point);
  }

  /**
   * Whether the index alone says which rows a filter selects, so that nothing need be evaluated
   * again.
   */
  boolean isExact(String filter) {
    return handle.call(address -> NativeLibrary.isExact(address, filter));
  }

  /** The number of rows that a filter selects, if the index alone knows it. */
  OptionalLong count(String filter) {
    long rows = handle.call(address -> NativeLibrary.count(address, filter));
    return rows < 0 ? OptionalLong.empty() : OptionalLong.of(rows);
  }

  /** Aggregates over the rows that a filter selects, if the index alone knows them. */
  Optional<LakemarkLocalRows> aggregate(String filter, String request) {
    return handle.call(
        address -> {
          try (NativeStream stream =
              new NativeStream(
                  out -> NativeLibrary.aggregate(address, filter, request, out.memoryAddress()))) {
            LakemarkLocalRows answer = LakemarkLocalRows.of(stream);
            return answer.schema().isEmpty() ? Optional.empty() : Optional.of(answer);
          } catch (IOException e) {
            throw NativeStream.translated(e);
          }
        });
  }

  /** The rows that a filter may select, cut into splits; only the first, if an order is given. */
  ScanPlan plan(String filter, PlanRequest rows, Optional<ObjectNode> top) {
    ObjectNode wanted = rows.json();
    top.ifPresent(first -> wanted.set("top", first));
    return handle.call(address -> plan(address, filter, wanted));
  }

  /**
   * The same rows of the same state without those for which {@code learned} is not true; empty if
   * the table is closed by now.
   */
  Optional<ScanPlan> planAgain(String filter, PlanRequest rows, ObjectNode learned) {
    ObjectNode wanted = rows.json();
    wanted.set("runtime", learned);
    return handle.call(
        address -> address == 0 ? Optional.empty() : Optional.of(plan(address, filter, wanted)));
  }

  private static ScanPlan plan(long address, String filter, ObjectNode wanted) {
    return ScanPlan.parse(NativeLibrary.plan(address, filter, Json.write(wanted)));
  }

  @Override
  public void close() {
    cleanable.clean();
  }

  /** Apart from the table, so that the cleaner does not keep the table reachable. */
  private static final class Handle implements Runnable {
    private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
    private long address;

    Handle(long address) {
      this.address = address;
    }

    <T> T call(LongFunction<T> function) {
      lock.readLock().lock();
      try {
        return function.apply(address);
      } finally {
        lock.readLock().unlock();
      }
    }

    @Override
    public void run() {
      lock.writeLock().lock();
      try {
        long closing = address;
        address = 0;
        NativeLibrary.close(closing);
      } finally {
        lock.writeLock().unlock();
      }
    }
  }
}

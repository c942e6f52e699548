package io.lakemark.spark.jni;

import io.lakemark.spark.LakemarkException;
import java.io.IOException;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.arrow.c.ArrowArrayStream;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.spark.sql.util.ArrowUtils;

/** An Arrow C stream that the native side filled, with the allocator that it lives in. */
public final class NativeStream implements AutoCloseable {
  /** How the native side tags the kind of a failure within a stream, which can carry only text. */
  private static final Pattern TAGGED = Pattern.compile("\\[lakemark:(\\w+)] (.*)", Pattern.DOTALL);

  private final BufferAllocator allocator;
  private final ArrowArrayStream stream;
  private final ArrowReader reader;

  /**
   * Opens a stream.
   *
   * @param export fills the empty stream structure, or throws
   */
  public NativeStream(Consumer<ArrowArrayStream> export) {
    allocator = ArrowUtils.rootAllocator().newChildAllocator("lakemark-scan", 0, Long.MAX_VALUE);
    ArrowArrayStream empty = null;
    try {
      empty = ArrowArrayStream.allocateNew(allocator);
      export.accept(empty);
      reader = Data.importArrayStream(allocator, empty);
      stream = empty;
    } catch (RuntimeException | Error e) {
      if (empty != null) {
        empty.close();
      }
      allocator.close();
      throw e;
    }
  }

  /** Loads the next batch into {@link #root()}. */
  public boolean next() {
    try {
      return reader.loadNextBatch();
    } catch (IOException | RuntimeException e) {
      throw translated(e);
    }
  }

  /** The batch that {@link #next} loaded last. The next one takes its place in the same vectors. */
  public VectorSchemaRoot root() {
    try {
      return reader.getVectorSchemaRoot();
    } catch (IOException e) {
      throw translated(e);
    }
  }

  /** The failure with its own kind again, as if it had not gone through a stream. */
  public static LakemarkException translated(Throwable failure) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      Matcher tagged = TAGGED.matcher(String.valueOf(cause.getMessage()));
      if (tagged.find()) {
        LakemarkException found = LakemarkException.of(tagged.group(1), tagged.group(2));
        found.addSuppressed(failure);
        return found;
      }
    }
    LakemarkException untagged =
        new LakemarkException.Internal("a native stream failed: " + failure.getMessage());
    untagged.addSuppressed(failure);
    return untagged;
  }

  @Override
  public void close() throws IOException {
    try {
      reader.close();
    } finally {
      stream.close();
      allocator.close();
    }
  }
}

package io.lakemark.spark.jni;

import io.lakemark.spark.LakemarkException;
import java.io.IOException;

/**
 * Proves on a running system that a defect of the native side becomes an exception and not the end
 * of the JVM. Both methods always throw a {@link LakemarkException} of kind {@code INTERNAL}.
 */
public final class NativeSelfTest {
  private NativeSelfTest() {}

  /** Has the native side panic within a call. */
  public static void panicInCall() {
    NativeLibrary.load();
    NativeLibrary.panic(0);
  }

  /**
   * Has the native side panic while it makes a batch.
   *
   * @throws IOException if the stream cannot be closed
   */
  public static void panicInStream() throws IOException {
    NativeLibrary.load();
    try (NativeStream stream =
        new NativeStream(empty -> NativeLibrary.panic(empty.memoryAddress()))) {
      stream.next();
    }
  }
}

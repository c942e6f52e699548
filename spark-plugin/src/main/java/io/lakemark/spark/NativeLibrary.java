package io.lakemark.spark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;
import org.apache.spark.TaskContext;

/**
 * The native functions, one for one with {@code rust/jni/src/calls.rs}, and how the library is
 * found.
 *
 * <p>The system property {@code lakemark.native.path} names a library file; without it the library
 * comes from the jar. Call {@link #load()} before any native method.
 */
final class NativeLibrary {
  static final String PATH_PROPERTY = "lakemark.native.path";

  private static boolean loaded;

  private NativeLibrary() {}

  /**
   * Loads the library once per class loader. A failure is reported again at every call, not only at
   * the first.
   */
  static synchronized void load() {
    if (loaded) {
      return;
    }
    String path = System.getProperty(PATH_PROPERTY);
    try {
      if (path != null) {
        System.load(Path.of(path).toAbsolutePath().toString());
      } else {
        loadFromJar(resource(System.getProperty("os.name"), System.getProperty("os.arch")));
      }
      LakemarkVersion.check(LakemarkVersion.get(), version());
    } catch (UnsatisfiedLinkError | IOException e) {
      throw new LakemarkException.Unsupported(
          "the native library cannot be loaded: " + e.getMessage());
    }
    loaded = true;
  }

  /**
   * The place of the library in the jar, for an operating system and processor as Java names them.
   */
  static String resource(String osName, String osArch) {
    String os =
        osName.toLowerCase(Locale.ROOT).contains("linux")
            ? "linux"
            : osName.toLowerCase(Locale.ROOT);
    String arch =
        switch (osArch) {
          case "x86_64" -> "amd64";
          case "aarch64" -> "arm64";
          default -> osArch;
        };
    return "/io/lakemark/spark/native/" + os + "/" + arch + "/liblakemark_jni.so";
  }

  private static void loadFromJar(String resource) throws IOException {
    try (InputStream in = NativeLibrary.class.getResourceAsStream(resource)) {
      if (in == null) {
        throw new IOException("the jar has no " + resource + "; this platform is not supported");
      }
      Path file = Files.createTempFile("liblakemark_jni-", ".so");
      try {
        Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
        System.load(file.toString());
      } finally {
        // The loaded library stays mapped; its name is no longer needed.
        Files.delete(file);
      }
    }
  }

  static native String version();

  static native long openTable(String path, String storeOrNull, boolean useIndex, long version);

  static native void schema(long table, long outSchema);

  static native long readPoint(long table);

  static native boolean isCertain(long table, String filter);

  static native long count(long table, String filter);

  static native void aggregate(long table, String filter, String question, long outStream);

  static native byte[] plan(long table, String filter, String wanted);

  static native long openPiece(String scan, String split, byte[] attachment, long outStream);

  static native String rowGroups(
      String path, String storeOrNull, String filterOrNull, String columns);

  static native String maintain(String path, String storeOrNull, String request);

  static native String build(String path, String storeOrNull, String request, BuildJob job);

  static native byte[] buildTask(
      String path, String storeOrNull, byte[] task, String tuning, TaskContext context);

  static native long beginStaging(String path, String storeOrNull, String operation);

  static native long stage(long staging, long array, long schema);

  static native String finishStaging(long staging);

  static native void abandonStaging(long staging);

  static native void close(long table);

  static native void panic(long outStream);
}

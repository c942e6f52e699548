package io.lakemark.spark.jni;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkVersion;
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
public final class NativeLibrary {
  static final String PATH_PROPERTY = "lakemark.native.path";

  private static boolean loaded;

  private NativeLibrary() {}

  /**
   * Loads the library once per class loader. A failure is reported again at every call, not only at
   * the first.
   */
  public static synchronized void load() {
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
      checkRelease(LakemarkVersion.get(), version());
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

  /** Refuses a native library of another release than a jar's, if both are known. */
  static void checkRelease(String jar, String library) {
    if (jar != null && !jar.equals(library)) {
      throw new LakemarkException.Unsupported(
          String.format(
              "the jar of the connector is lakemark %s and its native library is lakemark %s; name a"
                  + " library of the jar's release in %s, or none, so that the jar's own is taken",
              jar, library, PATH_PROPERTY));
    }
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

  public static native String version();

  public static native long openTable(
      String path, String storeOrNull, boolean useIndex, long version);

  public static native void schema(long table, long outSchema);

  public static native long readPoint(long table);

  public static native boolean isExact(long table, String filter);

  public static native long count(long table, String filter);

  public static native void aggregate(long table, String filter, String request, long outStream);

  public static native byte[] plan(long table, String filter, String request);

  public static native long openInput(String scan, String input, byte[] attachment, long outStream);

  public static native String rowGroups(
      String path, String storeOrNull, String filterOrNull, String columns);

  public static native String maintain(String path, String storeOrNull, String request);

  public static native String build(
      String path, String storeOrNull, String request, TaskRunner tasks);

  public static native byte[] buildTask(
      String path, String storeOrNull, byte[] task, String tuning, TaskContext context);

  public static native long beginStaging(String path, String storeOrNull, String operation);

  public static native long stage(long staging, long array, long schema);

  public static native String finishStaging(long staging);

  public static native void abandonStaging(long staging);

  public static native void close(long table);

  public static native void panic(long outStream);
}

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
 * <p>A table is named by its path, and by JSON that says where its indexes are and how its files
 * are reached ({@code rust/jni/src/storage.rs}), or null if there is nothing to say.
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
              "the jar of the connector is lakemark %s and its native library is lakemark %s; name"
                  + " a library of the jar's release in %s, or none, so that the jar's own is"
                  + " taken",
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

  /** The release of the native library. {@link #load} compares it with the release of the jar. */
  public static native String version();

  /**
   * Pins the newest state of a table, one whose data files are as old as {@code maxStalenessOrNull}
   * says, or a version that is not negative. {@code NativeTable} holds the result, which is the
   * {@code table} of other calls.
   */
  public static native long openTable(
      String path, String storageOrNull, boolean useIndex, long version, String maxStalenessOrNull);

  /**
   * Fills an Arrow C schema with the columns in Spark's types, for {@code NativeTable}. Its
   * metadata have the schema that Spark wrote into the files, if that has collations.
   */
  public static native void schema(long table, long outSchema);

  /**
   * The number of the pinned state, or -1 if the table takes no changes. {@code NativeTable}
   * requests it for statements that change the rows that they read.
   */
  public static native long readPoint(long table);

  /**
   * Whether the indexes alone say which rows a filter selects. {@code NativeTable} asks while Spark
   * plans, as Spark need not evaluate such a filter again.
   */
  public static native boolean isExact(long table, String filter);

  /**
   * The number of rows that a filter selects, or -1 if the indexes do not know it. {@code
   * NativeTable} calls this for a {@code count(*)}.
   */
  public static native long count(long table, String filter);

  /**
   * Fills an Arrow C stream with a row for each group, for {@code NativeTable}. It has no column if
   * the indexes do not know the groups.
   */
  public static native void aggregate(long table, String filter, String request, long outStream);

  /**
   * The splits of a scan, in the bytes that {@code ScanPlan} reads. {@code NativeTable} calls this
   * on the driver.
   */
  public static native byte[] plan(long table, String filter, String request);

  /**
   * Fills an Arrow C stream with the rows of one input of a split, for {@code LakemarkBatchReader}
   * in a task. Gives the bytes of memory that reading takes at most, roughly.
   */
  public static native long openInput(String scan, String input, byte[] attachment, long outStream);

  /**
   * What Spark's own reader of Parquet files may leave out, as JSON; if the version is not
   * negative, what Delta's reader of that version may. {@code RowGroupSelection} calls this for
   * scans under the extension.
   */
  public static native String rowGroups(
      String path, String storageOrNull, long version, String filterOrNull, String columns);

  /**
   * What a reader of the table's own files does not see, as JSON. {@code RowGroupSelection} calls
   * this for reads of Delta tables under the extension.
   */
  public static native String changesBesideFiles(String path, String storageOrNull);

  /**
   * Does what a request in JSON says, and gives the report in JSON. {@link Maintenance} calls this.
   */
  public static native String maintain(String path, String storageOrNull, String request);

  /**
   * Fills an Arrow C stream with the rows of a walk over the links of a table, which a request in
   * JSON says. Procedures of the catalog call this on the driver.
   */
  public static native void walk(String path, String storageOrNull, String request, long outStream);

  /**
   * Builds indexes by tasks that a {@link TaskRunner} runs, and gives the report in JSON. {@code
   * BuildJob} calls this on the driver.
   */
  public static native String build(
      String path, String storageOrNull, String request, TaskRunner tasks);

  /**
   * Does a task of a build and gives its part, for {@link TaskRunner#part}. {@code BuildTask} calls
   * this on executors.
   */
  public static native byte[] buildTask(
      String path, String storageOrNull, byte[] task, String tuning, TaskContext context);

  /**
   * Begins to write rows aside for one operation. {@code StagedRows} holds the result, which is the
   * {@code staging} of other calls, in each task that writes.
   */
  public static native long beginStaging(String path, String storageOrNull, String operation);

  /**
   * Adds the rows of an Arrow C array and takes both structures over. Gives the bytes of rows that
   * are in memory then, which {@code StagedRows} accounts for.
   */
  public static native long stage(long staging, long array, long schema);

  /**
   * Makes the rows durable and gives the names of their files as a JSON array. {@code StagedRows}
   * hands them to the driver, which makes one change of them.
   */
  public static native String finishStaging(long staging);

  /**
   * Removes what was staged, if it was not finished. {@code StagedRows} calls this whenever it
   * closes.
   */
  public static native void abandonStaging(long staging);

  /**
   * Gives back what {@link #openTable} gave. {@code NativeTable} calls this once, or its cleaner
   * does.
   */
  public static native void close(long table);

  /**
   * Panics in the call if the address is 0, else in the stream's first batch. Only {@link
   * NativeSelfTest} calls this.
   */
  public static native void panic(long outStream);
}

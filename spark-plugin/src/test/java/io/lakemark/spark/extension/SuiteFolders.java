package io.lakemark.spark.extension;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.NativeLibrary;
import io.lakemark.spark.jni.TaskRunner;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Marks folders while Spark's own test suites run: an index on every column that takes one, built
 * over all files that are there now. A folder whose files are those of the last time is left alone.
 *
 * <p>Builds run in the thread that asks, and not as jobs of Spark's, as the suites count those.
 */
final class SuiteFolders {
  /** Columns take turns; what a type does not take is passed over. */
  private static final List<String> KINDS = List.of("bitmap", "key", "bloom_tree", "summary");

  private static final String REQUEST = Json.write(Map.of("workers", 1));
  private static final String TUNING = Json.write(Map.of("threads", 1));

  /** Folders by the files that they had when they were marked. */
  private static final Map<Path, String> MARKED = new HashMap<>();

  private SuiteFolders() {}

  /** Marks a folder. What goes wrong is reported, and is no matter of the suite that reads it. */
  static synchronized void mark(Path folder, StructType columns) {
    try {
      String files = filesOf(folder);
      if (!files.isEmpty() && !files.equals(MARKED.put(folder, files))) {
        build(folder, columns);
      }
    } catch (RuntimeException | LinkageError e) {
      SuiteReport.add(Map.of("notMarked", folder.toString(), "error", String.valueOf(e)));
    }
  }

  private static void build(Path folder, StructType columns) {
    NativeLibrary.load();
    String table = folder.toString();
    List<String> names = names(columns);
    int indexes = 0;
    for (int place = 0; place < names.size(); place++) {
      if (create(table, names.get(place), place)) {
        indexes++;
      }
    }
    NativeLibrary.build(table, null, REQUEST, new InThisThread(table));
    SuiteReport.add(Map.of("marked", table, "indexes", indexes, "columns", names.size()));
  }

  /** Whether a column has an index now. */
  private static boolean create(String table, String column, int place) {
    Map<String, Object> request = new HashMap<>();
    request.put("do", "create_index");
    request.put("name", "by_" + place);
    request.put("columns", List.of(column));
    request.put("options", Map.of());
    for (int turn = 0; turn < KINDS.size(); turn++) {
      request.put("kind", KINDS.get((place + turn) % KINDS.size()));
      try {
        NativeLibrary.maintain(table, null, Json.write(request));
        return true;
      } catch (LakemarkException.AlreadyExists e) {
        return true;
      } catch (LakemarkException e) {
        // The type takes no index of this kind, or the files lack the column.
      }
    }
    return false;
  }

  /** Columns and fields of structs whose names need no quotes. */
  private static List<String> names(StructType columns) {
    return Arrays.stream(columns.fields()).flatMap(SuiteFolders::names).toList();
  }

  private static Stream<String> names(StructField column) {
    if (!column.name().matches("\\w+")) {
      return Stream.empty();
    }
    return column.dataType() instanceof StructType struct
        ? names(struct).stream().map(field -> column.name() + "." + field)
        : Stream.of(column.name());
  }

  /** The files that readers of the folder see, with their sizes and times. */
  private static String filesOf(Path folder) {
    if (!Files.isDirectory(folder)) {
      return "";
    }
    try (Stream<Path> found = Files.walk(folder)) {
      return found
          .filter(file -> isSeen(folder.relativize(file)))
          .map(SuiteFolders::described)
          .sorted()
          .collect(Collectors.joining("\n"));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean isSeen(Path file) {
    for (Path part : file) {
      String name = part.toString();
      if (name.startsWith(".") || (name.startsWith("_") && !name.contains("="))) {
        return false;
      }
    }
    return file.toString().endsWith(".parquet");
  }

  private static String described(Path file) {
    try {
      BasicFileAttributes known = Files.readAttributes(file, BasicFileAttributes.class);
      return file + " " + known.size() + " " + known.lastModifiedTime();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Runs each task when its end is asked for. */
  private static final class InThisThread implements TaskRunner {
    private final String folder;
    private final List<byte[]> tasks = new ArrayList<>();
    private int ended;

    InThisThread(String folder) {
      this.folder = folder;
    }

    @Override
    public void add(byte[] task) {
      tasks.add(task);
    }

    @Override
    public void start() {}

    @Override
    public int next(long millis) {
      return ended < tasks.size() ? ended++ : ENDED;
    }

    @Override
    public byte[] part(int task) {
      return NativeLibrary.buildTask(
          folder, null, tasks.get(task), TUNING, TaskContext$.MODULE$.empty());
    }
  }
}

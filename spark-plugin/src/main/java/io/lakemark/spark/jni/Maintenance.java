package io.lakemark.spark.jni;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkOptions;
import java.util.HashMap;
import java.util.Map;

/** Requests about a table's indexes and changes, which the native library answers. */
public final class Maintenance {
  private Maintenance() {}

  /**
   * Does something with a table and gives the report. {@code rust/jni/src/maintain.rs} has the
   * verbs, their arguments and what they answer.
   */
  public static JsonNode run(LakemarkOptions table, String verb, Map<String, Object> arguments) {
    NativeLibrary.load();
    Map<String, Object> request = new HashMap<>(arguments);
    request.put("do", verb);
    return Json.read(
        NativeLibrary.maintain(table.path(), table.storageJson(), Json.write(request)));
  }

  /**
   * The newest version that was made until a timestamp.
   *
   * @param micros microseconds since 1970-01-01 UTC
   */
  public static long versionAt(LakemarkOptions table, long micros) {
    return run(table, "version_at", Map.of("micros", micros)).longValue();
  }
}

package io.lakemark.spark.extension;

import io.lakemark.spark.jni.Json;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;

/**
 * What a run of Spark's own test suites did, one line of JSON each, in the file that the system
 * property {@link #NAME} names.
 */
final class SuiteReport {
  /** The name of the property. */
  static final String NAME = "lakemark.suites.report";

  private SuiteReport() {}

  /** Adds a line. */
  static synchronized void add(Map<String, Object> line) {
    String file = System.getProperty(NAME);
    if (file == null) {
      return;
    }
    try {
      Files.writeString(
          Path.of(file),
          Json.write(line) + "\n",
          StandardOpenOption.CREATE,
          StandardOpenOption.APPEND);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}

package io.lakemark.spark.storage;

import io.lakemark.spark.jni.Json;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * How an object store is reached, in the words of the Rust library. It has secrets, so that it is
 * not printed.
 *
 * @param options by the names that the library knows
 * @param provider what {@link CredentialProviders} asks for credentials, or null if the options
 *     have all
 */
record Access(Map<String, String> options, String provider) {
  /** The environment alone counts. */
  static final Access NONE = new Access(Map.of(), null);

  /**
   * Credentials that classes give.
   *
   * @param kind what they are: {@code s3}, {@code azure_signature}, {@code azure_token} or {@code
   *     google}
   * @param setting the setting that names the classes
   * @param classes their names: the first one that gives any counts
   * @param place scheme, container and host
   * @param hadoop the configuration that the classes see
   */
  static String provider(
      String kind, String setting, List<String> classes, String place, Map<String, String> hadoop) {
    Map<String, Object> fields = new TreeMap<>();
    fields.put("kind", kind);
    fields.put("setting", setting);
    fields.put("classes", classes);
    fields.put("place", place);
    fields.put("hadoop", hadoop);
    return Json.write(fields);
  }

  /** The same with options over it. */
  Access with(Map<String, String> more) {
    Map<String, String> all = new TreeMap<>(options);
    all.putAll(more);
    return new Access(all, provider);
  }

  /** For JSON. */
  Map<String, Object> fields() {
    Map<String, Object> fields = new TreeMap<>();
    fields.put("options", options);
    fields.put("provider", provider);
    return fields;
  }

  @Override
  public String toString() {
    return "Access by " + options.keySet() + (provider == null ? "" : " and a class");
  }
}

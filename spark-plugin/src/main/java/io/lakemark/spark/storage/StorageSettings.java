package io.lakemark.spark.storage;

import io.lakemark.spark.jni.Json;
import java.io.Serializable;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a session, a catalog and a table say of object stores. It travels to executors with the
 * options of the table. It has secrets, so that it is not printed.
 */
public final class StorageSettings implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Nothing: the environment of each process counts. */
  public static final StorageSettings NONE = new StorageSettings(Map.of(), Map.of());

  /** What options in the words of the Rust library begin with. */
  private static final String OWN = "storage.";

  /** What options in Hadoop's words begin with. */
  private static final String HADOOP = "fs.";

  /** Beginnings of Hadoop's names that are about object stores. */
  private static final List<String> KEPT =
      List.of(
          "fs.s3a.",
          "fs.azure.",
          "fs.gs.",
          "fs.unitycatalog.",
          "google.cloud.",
          "hadoop.security.credential.provider.path");

  /** Where Hadoop has its defaults, which say nothing of a table. */
  private static final String DEFAULTS = "core-default.xml";

  // Sorted, so that equal settings have equal texts.
  private final TreeMap<String, String> hadoop;
  private final TreeMap<String, String> options;

  private StorageSettings(Map<String, String> hadoop, Map<String, String> options) {
    this.hadoop = new TreeMap<>(hadoop);
    this.options = new TreeMap<>(options);
  }

  /** Whether an option of a read, a table or a catalog is about its storage. */
  public static boolean isOption(String name) {
    String folded = name.toLowerCase(Locale.ROOT);
    return folded.startsWith(OWN) || folded.startsWith(HADOOP);
  }

  /** What Hadoop's configuration of the active session says, with options over it. */
  public static StorageSettings ofSession(Map<String, String> options) {
    SparkSession session = SparkSession.active();
    Map<String, String> said = new HashMap<>();
    CollectionConverters.asJava(session.conf().getAll())
        .forEach(
            (name, value) -> {
              if (isKept(name)) {
                said.put(name, value);
              }
            });
    said.putAll(options);
    return of(session.sparkContext().hadoopConfiguration(), said);
  }

  /** What a configuration says, with options over it. Other options are left out. */
  public static StorageSettings of(Configuration configuration, Map<String, String> options) {
    TreeMap<String, String> hadoop = new TreeMap<>();
    for (Map.Entry<String, String> entry : configuration) {
      String name = entry.getKey();
      if (isKept(name) && isSaid(configuration.getPropertySources(name))) {
        hadoop.put(name, configuration.get(name));
      }
    }
    TreeMap<String, String> own = new TreeMap<>();
    options.forEach(
        (name, value) -> {
          String folded = name.toLowerCase(Locale.ROOT);
          if (folded.startsWith(OWN)) {
            own.put(folded.substring(OWN.length()), value);
          } else if (isKept(folded)) {
            hadoop.put(folded, value);
          }
        });
    return new StorageSettings(hadoop, own);
  }

  private static boolean isKept(String name) {
    return KEPT.stream().anyMatch(name::startsWith);
  }

  /** Whether somebody said a value, and not only Hadoop itself. */
  private static boolean isSaid(String[] sources) {
    return sources == null || sources.length == 0 || !DEFAULTS.equals(sources[sources.length - 1]);
  }

  /** Whether a place is on an object store, so that settings count. */
  public static boolean isRemote(String place) {
    return place != null && place.contains("://") && !place.startsWith("file:");
  }

  /** The same with options over it. */
  public StorageSettings with(Map<String, String> more) {
    StorageSettings over = of(new Configuration(false), more);
    TreeMap<String, String> bothHadoop = new TreeMap<>(hadoop);
    bothHadoop.putAll(over.hadoop);
    TreeMap<String, String> bothOptions = new TreeMap<>(options);
    bothOptions.putAll(over.options);
    return new StorageSettings(bothHadoop, bothOptions);
  }

  /**
   * What the Rust library hears of a table beside its path, as JSON; null if there is nothing to
   * say.
   *
   * @param path where the data are
   * @param store where the indexes are, or null for beside the data
   */
  public String json(String path, String store) {
    Map<String, Object> said = new TreeMap<>();
    if (store != null) {
      said.put("store", store);
      access(store).ifPresent(found -> said.put("indexes", found.fields()));
    }
    access(path).ifPresent(found -> said.put("data", found.fields()));
    return said.isEmpty() ? null : Json.write(said);
  }

  /** How a place is reached; nothing for local files, and where the environment alone counts. */
  Optional<Access> access(String place) {
    int scheme = place.indexOf("://");
    if (scheme < 0) {
      return Optional.empty();
    }
    Configuration configuration = configuration(hadoop);
    URI root = root(place);
    Access found =
        switch (place.substring(0, scheme).toLowerCase(Locale.ROOT)) {
          case "s3", "s3a", "s3n" -> new S3Storage(configuration, root).access(hadoop);
          case "abfs", "abfss", "az", "azure", "adl" ->
              new AzureStorage(configuration, root).access(hadoop);
          case "gs" -> new GoogleStorage(configuration, root).access(hadoop);
          default -> Access.NONE;
        };
    Access all = found.with(options);
    return all.equals(Access.NONE) ? Optional.empty() : Optional.of(all);
  }

  /** Scheme, container and host alone: a path may have what is no URL. */
  private static URI root(String place) {
    int host = place.indexOf("://") + 3;
    int path = place.indexOf('/', host);
    return URI.create(path < 0 ? place : place.substring(0, path));
  }

  /** Settings as Hadoop has them. */
  static Configuration configuration(Map<String, String> hadoop) {
    Configuration configuration = new Configuration(false);
    hadoop.forEach(configuration::set);
    return configuration;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof StorageSettings settings
        && hadoop.equals(settings.hadoop)
        && options.equals(settings.options);
  }

  @Override
  public int hashCode() {
    return 31 * hadoop.hashCode() + options.hashCode();
  }

  @Override
  public String toString() {
    return "StorageSettings of " + (hadoop.size() + options.size()) + " names";
  }
}

package io.lakemark.spark;

import io.lakemark.spark.storage.StorageSettings;
import java.io.Serializable;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of a read.
 *
 * @param path a folder, file, glob or Delta table
 * @param store where the indexes are, or null for {@code _lakemark/} beside the data
 * @param useIndex whether indexes are used at all
 * @param version the version that is read, or {@link #NEWEST}
 * @param maxStaleness how long a query may go by the data files that an earlier one found, such as
 *     {@code 30s}, or null to look each time
 * @param storage how the files are reached
 */
public record LakemarkOptions(
    String path,
    String store,
    boolean useIndex,
    long version,
    String maxStaleness,
    StorageSettings storage)
    implements Serializable {
  /** Reads the newest state. */
  public static final long NEWEST = -1;

  private static final String USE_INDEX = "use_index";
  private static final String MAX_STALENESS = "max_staleness";

  /** In lower case, as {@link CaseInsensitiveStringMap} has them. Writes take them, too. */
  public static final List<String> KNOWN =
      List.of("path", "store", USE_INDEX, "version", MAX_STALENESS);

  static LakemarkOptions of(Map<String, String> properties) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
    String path = options.get("path");
    if (options.containsKey("paths")) {
      throw new LakemarkException.Unsupported(
          "format \"lakemark\" reads one path at a time; use a glob, or union the tables");
    }
    if (path == null || path.isBlank()) {
      throw new LakemarkException.InvalidInput(
          "format \"lakemark\" needs a path: spark.read().format(\"lakemark\").load(path)");
    }
    return new LakemarkOptions(
        path,
        options.get("store"),
        !options.containsKey(USE_INDEX) || parseFlag(USE_INDEX, options.get(USE_INDEX)),
        options.containsKey("version") ? parseVersion(options.get("version")) : NEWEST,
        options.get(MAX_STALENESS),
        isRemote(path, options.get("store"))
            ? StorageSettings.ofSession(ofStorage(properties))
            : StorageSettings.NONE);
  }

  private static boolean isRemote(String path, String store) {
    return StorageSettings.isRemote(path) || StorageSettings.isRemote(store);
  }

  /** Those of the options that are about the storage. */
  private static Map<String, String> ofStorage(Map<String, String> options) {
    Map<String, String> found = new HashMap<>(options);
    found.keySet().removeIf(name -> !StorageSettings.isOption(name));
    return found;
  }

  /** What the Rust library hears of the table beside its path; null if there is nothing to say. */
  public String storageJson() {
    return storage.json(path, store);
  }

  /** The number of a version, as users write it. */
  static long parseVersion(String text) {
    try {
      long version = Long.parseLong(text.strip());
      if (version >= 0) {
        return version;
      }
    } catch (NumberFormatException e) {
      // Said below.
    }
    throw new LakemarkException.InvalidInput(
        "a version is a whole number such as 12, not \"" + text + "\"; see lakemark history");
  }

  /** The same table as another process finds it, whose working folder is another one. */
  public LakemarkOptions absolute() {
    return new LakemarkOptions(
        absolute(path), absolute(store), useIndex, version, maxStaleness, storage);
  }

  private static String absolute(String place) {
    boolean isRelative = place != null && !place.contains("://") && !place.startsWith("file:");
    return isRelative ? Path.of(place).toAbsolutePath().toString() : place;
  }

  /** The same table at a version. */
  LakemarkOptions atVersion(long wanted) {
    return new LakemarkOptions(path, store, useIndex, wanted, maxStaleness, storage);
  }

  /** The same table with what a query says of its own. */
  public LakemarkOptions forQuery(CaseInsensitiveStringMap query) {
    checkKnown(query);
    boolean asked =
        query.containsKey(USE_INDEX) ? parseFlag(USE_INDEX, query.get(USE_INDEX)) : useIndex;
    String staleness = query.containsKey(MAX_STALENESS) ? query.get(MAX_STALENESS) : maxStaleness;
    Map<String, String> more = ofStorage(query.asCaseSensitiveMap());
    StorageSettings reached = isRemote(path, store) ? storage.with(more) : storage;
    return new LakemarkOptions(path, store, asked, version, staleness, reached);
  }

  /**
   * An option that is not known may be a slip that would change what is read, as a misspelt {@code
   * store} or {@code version} would. Spark has options of its own beside the user's.
   */
  private void checkKnown(CaseInsensitiveStringMap query) {
    Set<String> unknown = new TreeSet<>(query.keySet());
    unknown.removeAll(KNOWN);
    unknown.removeIf(name -> name.startsWith("__") || StorageSettings.isOption(name));
    if (version != NEWEST) {
      // Spark has loaded this version from the catalog, and keeps the option.
      unknown.removeAll(Set.of("versionasof", "timestampasof"));
    }
    if (!unknown.isEmpty()) {
      throw new LakemarkException.InvalidInput(
          String.format(
              "there is no option %s of a read; there are %s",
              String.join(", ", unknown), listed(KNOWN)));
    }
  }

  /** Names as a sentence has them. */
  public static String listed(List<String> names) {
    int last = names.size() - 1;
    return String.join(", ", names.subList(0, last)) + " and " + names.get(last);
  }

  /** What is on or off, as users write it. */
  public static boolean parseFlag(String name, String text) {
    return switch (text.strip().toLowerCase(Locale.ROOT)) {
      case "true" -> true;
      case "false" -> false;
      default ->
          throw new LakemarkException.InvalidInput(
              name + " is " + text + ", it must be true or false");
    };
  }

  /** The table as plans name it. */
  public String description() {
    return "lakemark " + path + (version == NEWEST ? "" : " version " + version);
  }
}

package io.lakemark.spark.catalog;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.read.NativeTable;
import io.lakemark.spark.storage.StorageSettings;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.StructField;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Tables of Spark's own catalog, which may be a metastore, by the places of their data.
 *
 * <p>A Delta table is what its log says. Of Parquet files the catalog says more than their folder:
 * which columns, partitions and files there are. A table of which the catalog says anything else
 * than the folder is refused, as its rows would be others.
 */
public final class SessionTables {
  private static final String SESSION_CATALOG = "spark_catalog";
  private static final String PARQUET = ".parquet";
  private static final String DELTA_LOG = "_delta_log";
  private static final Set<String> INTEGERS = Set.of("tinyint", "smallint", "int", "bigint");

  private final SparkSession session;
  private final Map<String, String> storage;

  /**
   * The tables of a session's catalog.
   *
   * @param storage options of their storages, over what the session says
   */
  public SessionTables(SparkSession session, Map<String, String> storage) {
    this.session = session;
    this.storage = Map.copyOf(storage);
  }

  /** Whether the catalog has the name, which is {@code db.t} or {@code spark_catalog.db.t}. */
  public boolean has(Identifier table) {
    return known(table).isPresent();
  }

  /**
   * The options of the table of a name, if the catalog has it.
   *
   * @throws LakemarkException.Unsupported where the folder is not what the catalog says
   */
  public Optional<Map<String, String>> find(Identifier table) {
    return known(table).map(this::options);
  }

  private Optional<CatalogTable> known(Identifier table) {
    String[] namespace = table.namespace();
    boolean isQualified = namespace.length == 2 && namespace[0].equals(SESSION_CATALOG);
    if (namespace.length != 1 && !isQualified) {
      return Optional.empty();
    }
    String database = namespace[namespace.length - 1];
    try {
      return Optional.of(
          session
              .sessionState()
              .catalog()
              .getTableMetadata(new TableIdentifier(table.name(), Option.apply(database))));
    } catch (NoSuchNamespaceException | NoSuchTableException e) {
      return Optional.empty();
    }
  }

  private Map<String, String> options(CatalogTable table) {
    Option<String> provider = table.provider();
    String format = provider.isDefined() ? provider.get().toLowerCase(Locale.ROOT) : "view";
    boolean isParquet =
        format.equals("parquet") || (format.equals("hive") && isParquet(table.storage().serde()));
    if (!isParquet && !format.equals("delta") && !format.equals("lakemark")) {
      throw refused(table, "it is of the format " + format);
    }
    Path root = new Path(table.location());
    Map<String, String> options = new HashMap<>();
    options.put("path", text(root));
    Option<String> ofTable = table.storage().properties().get("store");
    Optional<String> store =
        format.equals("lakemark") && ofTable.isDefined()
            ? Optional.of(ofTable.get())
            : StoreSetting.of(session, root);
    store.ifPresent(place -> options.put("store", place));
    CollectionConverters.asJava(table.storage().properties())
        .forEach(
            (name, value) -> {
              if (StorageSettings.isOption(name)) {
                // As the catalog has its own, which these replace.
                options.put(name.toLowerCase(Locale.ROOT), value);
              }
            });
    if (isParquet) {
      checkFiles(table, root);
      checkColumns(table, options);
    }
    return options;
  }

  private static boolean isParquet(Option<String> serde) {
    return serde.isDefined() && serde.get().toLowerCase(Locale.ROOT).contains("parquet");
  }

  /** The path as people write it. */
  private static String text(Path root) {
    String scheme = root.toUri().getScheme();
    return scheme == null || scheme.equals("file") ? root.toUri().getPath() : root.toString();
  }

  /** Spark reads every file of the partitions that its catalog has, whatever the file's name. */
  private void checkFiles(CatalogTable table, Path location) {
    try {
      FileSystem system = location.getFileSystem(session.sparkContext().hadoopConfiguration());
      Path root = system.makeQualified(location);
      if (system.exists(new Path(root, DELTA_LOG))) {
        throw refused(table, "its folder is a Delta table");
      }
      Optional<Set<Path>> partitions = partitions(table, system, root);
      RemoteIterator<LocatedFileStatus> files = system.listFiles(root, true);
      while (files.hasNext()) {
        Path file = files.next().getPath();
        if (isHidden(root, file)) {
          continue;
        }
        if (!file.getName().toLowerCase(Locale.ROOT).endsWith(PARQUET)) {
          throw refused(table, "its file " + file + " has no name that ends with " + PARQUET);
        }
        if (partitions.isPresent() && !partitions.get().contains(file.getParent())) {
          throw refused(table, "the catalog has no partition for its file " + file);
        }
      }
    } catch (IOException e) {
      throw new LakemarkException.Io(
          "the files of " + name(table) + " cannot be listed: " + e.getMessage());
    }
  }

  /** The folders of the partitions, if the catalog says which there are. */
  private Optional<Set<Path>> partitions(CatalogTable table, FileSystem system, Path root) {
    if (table.partitionColumnNames().isEmpty() || !table.tracksPartitionsInCatalog()) {
      return Optional.empty();
    }
    Set<Path> folders = new HashSet<>();
    for (CatalogTablePartition partition :
        CollectionConverters.asJava(
            session.sessionState().catalog().listPartitions(table.identifier(), Option.empty()))) {
      Path folder = system.makeQualified(new Path(partition.location()));
      Path expected =
          ExternalCatalogUtils.generatePartitionPath(
              partition.spec(), table.partitionColumnNames(), root);
      if (!folder.equals(expected)) {
        throw refused(table, "its partition " + folder + " is not at " + expected);
      }
      folders.add(folder);
    }
    return Optional.of(folders);
  }

  /** As Spark hides files: also in a folder that is hidden. */
  private static boolean isHidden(Path root, Path file) {
    String below = root.toUri().relativize(file.toUri()).getPath();
    return Arrays.stream(below.split("/"))
        .anyMatch(part -> part.startsWith(".") || (part.startsWith("_") && part.indexOf('=') < 0));
  }

  private void checkColumns(CatalogTable table, Map<String, String> options) {
    Map<String, String> reached = new HashMap<>(storage);
    reached.putAll(options);
    String path = options.get("path");
    String store = options.get("store");
    boolean isRemote = StorageSettings.isRemote(path) || StorageSettings.isRemote(store);
    StorageSettings settings = isRemote ? StorageSettings.ofSession(reached) : StorageSettings.NONE;
    LakemarkOptions read =
        new LakemarkOptions(path, store, true, LakemarkOptions.NEWEST, null, settings);
    StructField[] known = table.schema().fields();
    StructField[] stored = columns(read);
    if (known.length != stored.length) {
      throw refused(
          table, "the catalog has " + known.length + " columns and its files " + stored.length);
    }
    for (int at = 0; at < known.length; at++) {
      if (!isSame(table, known[at], stored[at])) {
        throw refused(
            table,
            String.format(
                "the catalog has a column %s where its files have %s",
                text(known[at]), text(stored[at])));
      }
    }
  }

  /** The names of folders say no more of a number than that it is one. */
  private static boolean isSame(CatalogTable table, StructField known, StructField stored) {
    boolean isNumber =
        table.partitionColumnNames().contains(known.name())
            && INTEGERS.contains(known.dataType().catalogString())
            && INTEGERS.contains(stored.dataType().catalogString());
    return isNumber
        ? known.name().equalsIgnoreCase(stored.name())
        : text(known).equals(text(stored));
  }

  private static StructField[] columns(LakemarkOptions read) {
    try (NativeTable files = NativeTable.open(read)) {
      return files.schema().fields();
    }
  }

  /** Name and type as they are compared: in letters of any case, and whatever may be NULL. */
  private static String text(StructField column) {
    return (column.name() + " " + column.dataType().catalogString()).toLowerCase(Locale.ROOT);
  }

  private static String name(CatalogTable table) {
    return table.identifier().unquotedString();
  }

  private static LakemarkException refused(CatalogTable table, String because) {
    return new LakemarkException.Unsupported(
        String.format(
            "%s of Spark's catalog cannot be read by its place, as %s; read it by its own name,"
                + " where the session extension uses indexes of Parquet and Delta tables",
            name(table), because));
  }
}

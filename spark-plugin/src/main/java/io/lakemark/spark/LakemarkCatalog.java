package io.lakemark.spark;

import io.lakemark.spark.catalog.IndexListTable;
import io.lakemark.spark.catalog.LakemarkTable;
import io.lakemark.spark.catalog.Procedures;
import io.lakemark.spark.catalog.SessionTables;
import io.lakemark.spark.catalog.Warehouse;
import io.lakemark.spark.jni.Maintenance;
import io.lakemark.spark.storage.StorageSettings;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.NavigableSet;
import java.util.Optional;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A catalog of tables with indexes: {@code spark.sql.catalog.lm=io.lakemark.spark.LakemarkCatalog}.
 *
 * <p>A table has one of four names:
 *
 * <ul>
 *   <li>its path, {@code lm.`/data/flights`}, with nothing configured;
 *   <li>the name that {@code spark.sql.catalog.lm.tables.NAME=PATH} gives it;
 *   <li>its place below {@code spark.sql.catalog.lm.warehouse=PATH}, where folders with data are
 *       tables and all others are namespaces, or the name that {@code CREATE TABLE … USING lakemark
 *       LOCATION} gave it there;
 *   <li>the name that Spark's own catalog has for a Parquet or Delta table, {@code lm.db.t} for
 *       {@code spark_catalog.db.t}, where none of the others is there.
 * </ul>
 *
 * <p>A name followed by {@code $indexes} is a table of its indexes. The namespace {@code system}
 * has the procedures. Data are never created and never removed here.
 */
public final class LakemarkCatalog implements TableCatalog, SupportsNamespaces, ProcedureCatalog {
  private static final String TABLES = "tables.";
  private static final String SYSTEM = "system";

  private String name;
  private Map<Identifier, String> configured;
  private String warehousePath;
  private Map<String, String> readOptions;

  /** Made by Spark, by reflection. */
  public LakemarkCatalog() {}

  @Override
  public void initialize(String catalogName, CaseInsensitiveStringMap options) {
    name = catalogName;
    configured = new HashMap<>();
    readOptions = new HashMap<>();
    options.asCaseSensitiveMap().forEach(this::configure);
  }

  private void configure(String key, String value) {
    String folded = key.toLowerCase(Locale.ROOT);
    if (folded.startsWith(TABLES)) {
      configured.put(identifier(key.substring(TABLES.length())), value);
    } else if (folded.equals("warehouse")) {
      warehousePath = plainPath(value);
    } else if (folded.equals("use_index") || StorageSettings.isOption(folded)) {
      readOptions.put(folded, value);
    } else {
      throw new LakemarkException.InvalidInput(
          String.format(
              "there is no option spark.sql.catalog.%s.%s; a catalog has warehouse, tables.NAME,"
                  + " use_index, storage.NAME, and Hadoop's names of storages (fs.…)",
              name, key));
    }
  }

  @Override
  public String name() {
    return name;
  }

  // ---- tables

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    NavigableSet<String> names = new TreeSet<>();
    configured.keySet().stream()
        .filter(table -> Arrays.equals(table.namespace(), namespace))
        .forEach(table -> names.add(table.name()));
    Optional<NavigableSet<String>> inWarehouse =
        warehouse().flatMap(each -> each.tables(namespace));
    inWarehouse.ifPresent(names::addAll);
    if (names.isEmpty() && !namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return names.stream().map(table -> Identifier.of(namespace, table)).toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    if (table.name().endsWith(IndexListTable.SUFFIX)) {
      String of = table.name().substring(0, table.name().length() - IndexListTable.SUFFIX.length());
      return new IndexListTable(find(Identifier.of(table.namespace(), of)));
    }
    return LakemarkTable.open(find(table));
  }

  /** {@code SELECT … FROM lm.t VERSION AS OF 12}. */
  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return LakemarkTable.open(find(table).atVersion(LakemarkOptions.parseVersion(version)));
  }

  /**
   * {@code SELECT … FROM lm.t TIMESTAMP AS OF '2024-06-01'}: the newest version that was made until
   * then.
   *
   * @param timestamp microseconds since 1970-01-01 UTC
   */
  @Override
  public Table loadTable(Identifier table, long timestamp) throws NoSuchTableException {
    LakemarkOptions found = find(table);
    return LakemarkTable.open(found.atVersion(Maintenance.versionAt(found, timestamp)));
  }

  /** The table of a name or of a path in SQL, for procedures. */
  private LakemarkOptions find(String text) {
    if (text.indexOf('/') >= 0 && text.indexOf('`') < 0) {
      return options(Map.of("path", text));
    }
    Identifier table = identifier(text);
    String[] parts = table.namespace();
    boolean isQualified = parts.length > 0 && parts[0].equals(name);
    String[] namespace = isQualified ? Arrays.copyOfRange(parts, 1, parts.length) : parts;
    try {
      return find(Identifier.of(namespace, table.name()));
    } catch (NoSuchTableException e) {
      throw new LakemarkException.NotFound(
          String.format(
              "there is no table %s in the catalog %s; SHOW TABLES IN %s lists them, and a path"
                  + " such as '/data/flights' needs no name",
              text, name, name));
    }
  }

  private LakemarkOptions find(Identifier table) throws NoSuchTableException {
    if (table.name().indexOf('/') >= 0) {
      return options(Map.of("path", table.name()));
    }
    String path = configured.get(table);
    if (path != null) {
      return options(Map.of("path", path));
    }
    Optional<Map<String, String>> found =
        warehouse().flatMap(each -> each.find(table)).or(() -> ofSession().find(table));
    return options(found.orElseThrow(() -> new NoSuchTableException(table)));
  }

  private LakemarkOptions options(Map<String, String> ofTable) {
    Map<String, String> all = new HashMap<>(readOptions);
    all.putAll(ofTable);
    return LakemarkOptions.of(all);
  }

  /**
   * Gives a name to data that are there; {@code option.store} may name the place of the indexes.
   */
  @Override
  @SuppressWarnings("deprecation") // Spark's newer method calls it.
  public Table createTable(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Map<String, String> options = new HashMap<>();
    properties.forEach(
        (key, value) -> {
          if (key.startsWith(OPTION_PREFIX)) {
            options.put(key.substring(OPTION_PREFIX.length()), value);
          }
        });
    if (options.keySet().stream().anyMatch(StorageSettings::isOption)) {
      throw new LakemarkException.InvalidInput(
          String.format(
              "options of storages are not kept with the name %s, as they may be secret: set"
                  + " spark.sql.catalog.%s.storage.… or spark.hadoop.fs.… for all tables",
              table, name));
    }
    String location = properties.getOrDefault(TableCatalog.PROP_LOCATION, options.get("path"));
    checkCreation(table, columns, partitions, properties.get(PROP_PROVIDER), location);
    options.put("path", plainPath(location));
    Warehouse warehouse = warehouse().orElseThrow(() -> nowhereToRemember(table));
    if (!namespaceExists(table.namespace())) {
      throw new NoSuchNamespaceException(table.namespace());
    }
    // Opened first: a name for nothing would help nobody.
    Table opened = LakemarkTable.open(options(options));
    boolean isTaken = configured.containsKey(table) || warehouse.find(table).isPresent();
    if (isTaken || !warehouse.remember(table, options)) {
      throw new TableAlreadyExistsException(table);
    }
    return opened;
  }

  private void checkCreation(
      Identifier table, Column[] columns, Transform[] partitions, String provider, String path) {
    String wanted = null;
    if (provider != null && !provider.equalsIgnoreCase("lakemark")) {
      wanted = "say USING lakemark: this catalog has no tables of the format " + provider;
    } else if (path == null) {
      wanted = "add LOCATION with the folder of the data, which must be there";
    } else if (columns.length > 0 || partitions.length > 0) {
      wanted = "leave columns and partitions out, as the data files say them";
    } else if (table.name().indexOf('/') >= 0) {
      wanted = "give it a name; a path needs no creation";
    }
    if (wanted != null) {
      throw new LakemarkException.Unsupported(
          "the catalog "
              + name
              + " gives names to data that are there, and writes none: "
              + wanted);
    }
  }

  private LakemarkException nowhereToRemember(Identifier table) {
    return new LakemarkException.InvalidInput(
        String.format(
            "the catalog %s has no place to remember %s: set spark.sql.catalog.%s.warehouse to a"
                + " folder or URL, or configure spark.sql.catalog.%s.tables.%s with the path",
            name, table, name, name, table));
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    throw new LakemarkException.Unsupported(
        "the columns and properties of "
            + table
            + " are those of its data files and cannot be altered here; drop and create the name to"
            + " change its path or options");
  }

  /** Forgets a name that {@code CREATE TABLE} gave. Data and indexes stay. */
  @Override
  public boolean dropTable(Identifier table) {
    if (table.name().indexOf('/') >= 0) {
      throw cannotForget(table, "a path, and data are never removed");
    }
    if (configured.containsKey(table)) {
      throw cannotForget(table, "a name in the configuration; remove it there");
    }
    Optional<Warehouse> warehouse = warehouse();
    if (warehouse.isPresent() && warehouse.get().forget(table)) {
      return true;
    }
    if (warehouse.isPresent() && warehouse.get().find(table).isPresent()) {
      throw cannotForget(table, "a folder of the warehouse, and data are never removed");
    }
    if (ofSession().has(table)) {
      throw cannotForget(table, "a name of Spark's own catalog; drop it there");
    }
    return false;
  }

  private LakemarkException cannotForget(Identifier table, String because) {
    return new LakemarkException.Unsupported(
        "DROP TABLE only forgets names that CREATE TABLE gave; " + table + " is " + because);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw new LakemarkException.Unsupported(
        "tables cannot be renamed here; drop the name " + from + " and create " + to);
  }

  // ---- namespaces

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
    NavigableSet<String> names = new TreeSet<>();
    configured.keySet().stream()
        .map(Identifier::namespace)
        .filter(each -> each.length > parent.length && startsWith(each, parent))
        .forEach(each -> names.add(each[parent.length]));
    warehouse().flatMap(each -> each.namespaces(parent)).ifPresent(names::addAll);
    if (names.isEmpty() && !namespaceExists(parent)) {
      throw new NoSuchNamespaceException(parent);
    }
    return names.stream().map(each -> joined(parent, each)).toArray(String[][]::new);
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0
        || configured.keySet().stream().anyMatch(each -> startsWith(each.namespace(), namespace))
        || warehouse().map(each -> each.isNamespace(namespace)).orElse(false);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return warehousePath == null
        ? Map.of()
        : Map.of(
            SupportsNamespaces.PROP_LOCATION,
            String.join("/", joined(new String[] {warehousePath}, namespace)));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata)
      throws NamespaceAlreadyExistsException {
    if (namespaceExists(namespace)) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
    warehouse()
        .orElseThrow(() -> nowhereToRemember(Identifier.of(namespace, "NAME")))
        .createNamespace(namespace);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw new LakemarkException.Unsupported(
        "a namespace is a folder, which has no properties to alter");
  }

  /** Removes an empty folder; CASCADE would remove data. */
  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    boolean isDropped =
        namespace.length > 0
            && warehouse().filter(each -> each.isNamespace(namespace)).isPresent()
            && warehouse().get().dropNamespace(namespace);
    if (isDropped) {
      return true;
    }
    if (cascade) {
      throw new LakemarkException.Unsupported(
          "CASCADE would remove data, which this catalog never does; remove what is in the"
              + " namespace yourself");
    }
    throw new NonEmptyNamespaceException(namespace);
  }

  // ---- procedures

  @Override
  public UnboundProcedure loadProcedure(Identifier procedure) {
    if (!Arrays.equals(procedure.namespace(), new String[] {SYSTEM})) {
      throw new LakemarkException.NotFound(
          "there is no procedure " + procedure + "; they are in " + name + "." + SYSTEM);
    }
    return Procedures.of(name, this::find, procedure.name());
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    boolean isSystem = Arrays.equals(namespace, new String[] {SYSTEM});
    return isSystem
        ? Procedures.names().stream()
            .map(each -> Identifier.of(namespace, each))
            .toArray(Identifier[]::new)
        : new Identifier[0];
  }

  // ---- names

  private Optional<Warehouse> warehouse() {
    return Optional.ofNullable(warehousePath)
        .map(
            path ->
                new Warehouse(path, SparkSession.active().sparkContext().hadoopConfiguration()));
  }

  private SessionTables ofSession() {
    return new SessionTables(SparkSession.active(), readOptions);
  }

  private static Identifier identifier(String text) {
    List<String> parts =
        new ArrayList<>(
            CollectionConverters.asJava(CatalystSqlParser$.MODULE$.parseMultipartIdentifier(text)));
    String last = parts.remove(parts.size() - 1);
    return Identifier.of(parts.toArray(new String[0]), last);
  }

  /** Spark writes local paths as {@code file:/data}, which are plain paths everywhere else. */
  private static String plainPath(String location) {
    return location.startsWith("file:/") && !location.startsWith("file://")
        ? location.substring("file:".length())
        : location;
  }

  private static boolean startsWith(String[] namespace, String[] parent) {
    return namespace.length >= parent.length
        && Arrays.equals(Arrays.copyOf(namespace, parent.length), parent);
  }

  private static String[] joined(String[] first, String... rest) {
    String[] all = Arrays.copyOf(first, first.length + rest.length);
    System.arraycopy(rest, 0, all, first.length, rest.length);
    return all;
  }
}

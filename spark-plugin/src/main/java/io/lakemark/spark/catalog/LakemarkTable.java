package io.lakemark.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Maintenance;
import io.lakemark.spark.read.LakemarkScan;
import io.lakemark.spark.read.LakemarkScanBuilder;
import io.lakemark.spark.read.NativeTable;
import io.lakemark.spark.read.PlannedQuery;
import io.lakemark.spark.write.LakemarkChange;
import io.lakemark.spark.write.LakemarkRowLevelOperation;
import io.lakemark.spark.write.LakemarkWrite;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.analysis.IndexAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchIndexException;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.index.SupportsIndex;
import org.apache.spark.sql.connector.catalog.index.TableIndex;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of Parquet files, or a Delta table, with its indexes. Holds nothing native: each query
 * pins its own state.
 */
public final class LakemarkTable
    implements SupportsRead, SupportsWrite, SupportsRowLevelOperations, SupportsIndex {
  /** A name on the way to a field, in double quotes if it has a dot or a quote in it. */
  private static final Pattern PART = Pattern.compile("\"((?:[^\"]|\"\")*)\"|[^.\"]+");

  /** The option of {@code CREATE INDEX} that is about the statement and not about the index. */
  private static final String BUILD = "build";

  private final LakemarkOptions options;
  private final StructType schema;
  private final Map<String, String> properties;

  /**
   * Of a schema that Spark has already, so that nothing is opened; {@link #open} reads the schema.
   */
  public LakemarkTable(LakemarkOptions options, StructType schema, Map<String, String> properties) {
    this.options = options;
    this.schema = schema;
    this.properties = Map.copyOf(properties);
  }

  /** Opens a table for a catalog. */
  public static LakemarkTable open(LakemarkOptions options) {
    Map<String, String> properties = new HashMap<>();
    properties.put(TableCatalog.PROP_PROVIDER, "lakemark");
    properties.put(TableCatalog.PROP_LOCATION, options.path());
    if (options.store() != null) {
      properties.put("store", options.store());
    }
    try (NativeTable table = NativeTable.open(options)) {
      return new LakemarkTable(options, table.schema(), properties);
    }
  }

  @Override
  public String name() {
    return options.description();
  }

  @Override
  @SuppressWarnings("deprecation") // Spark's newer method, columns(), calls it.
  public StructType schema() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  /** Only descriptions of the table need it. */
  @Override
  public Transform[] partitioning() {
    JsonNode columns = Maintenance.run(options, "describe", Map.of()).get("partition_columns");
    List<Transform> partitioning = new ArrayList<>();
    columns.forEach(
        column -> partitioning.add(Expressions.identity(LakemarkScan.quoted(column.asText()))));
    return partitioning.toArray(new Transform[0]);
  }

  @Override
  public Set<TableCapability> capabilities() {
    // Whoever names an operation may write some columns only: the native side says which it needs.
    // It must not be said of tables in SQL, where Spark would not resolve UPDATE and MERGE then.
    boolean namesOperation =
        properties.keySet().stream().anyMatch(LakemarkChange.OPERATION::equalsIgnoreCase);
    return namesOperation
        ? Set.of(
            TableCapability.BATCH_READ,
            TableCapability.BATCH_WRITE,
            TableCapability.ACCEPT_ANY_SCHEMA)
        : Set.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap scanOptions) {
    return new LakemarkScanBuilder(
        options.forQuery(scanOptions), schema, PlannedQuery.ofThread().joins(this));
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    key();
    return LakemarkWrite.builder(options, info, Optional::empty);
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    List<String> key = key();
    List<String> known = Arrays.asList(schema.fieldNames());
    for (String column : key) {
      if (!known.contains(column)) {
        throw new LakemarkException.Conflict(
            String.format(
                "the key of %s has the column %s by now, which Spark does not know yet; refresh the"
                    + " table and run the statement again",
                name(), column));
      }
      if (schema.apply(column).nullable()) {
        throw new LakemarkException.InvalidInput(
            String.format(
                "%s was named before %s became its key, so that Spark takes it for a column that may"
                    + " be NULL; drop the name and create it again",
                name(), column));
      }
    }
    return () -> new LakemarkRowLevelOperation(options, schema, key, info.command());
  }

  /** The columns of the key; a table that cannot be changed says why. */
  private List<String> key() {
    checkIsNewest("it");
    List<String> key = new ArrayList<>();
    Maintenance.run(options, "key", Map.of()).forEach(column -> key.add(column.asText()));
    return key;
  }

  /** Declares an index and fills it, unless the option {@code build} is {@code false}. */
  @Override
  public void createIndex(
      String indexName,
      NamedReference[] columns,
      Map<NamedReference, Map<String, String>> columnsProperties,
      Map<String, String> indexProperties)
      throws IndexAlreadyExistsException {
    Map<String, String> ofIndex = new HashMap<>(indexProperties);
    columnsProperties.values().forEach(ofIndex::putAll);
    String kind = ofIndex.remove(SupportsIndex.PROP_TYPE);
    String build = ofIndex.remove(BUILD);
    boolean isBuilt = build == null || LakemarkOptions.parseFlag(BUILD, build);
    Map<String, Object> arguments = new HashMap<>();
    arguments.put("name", indexName);
    arguments.put("columns", Arrays.stream(columns).map(this::text).toList());
    arguments.put("kind", kind == null ? "" : kind);
    arguments.put("options", ofIndex);
    JsonNode created;
    try {
      created = change("create_index", arguments);
    } catch (LakemarkException.AlreadyExists e) {
      throw new IndexAlreadyExistsException(indexName, name(), scala.Option.apply(e));
    }
    if (isBuilt) {
      // Only this index: the statement names no other, and filling others may take hours.
      BuildJob.run(options, Map.of("index", created.get("name").asText()));
    }
  }

  @Override
  public void dropIndex(String indexName) throws NoSuchIndexException {
    try {
      change("drop_index", Map.of("name", indexName));
    } catch (LakemarkException.NotFound e) {
      throw new NoSuchIndexException(indexName, name(), scala.Option.apply(e));
    }
  }

  private JsonNode change(String verb, Map<String, Object> arguments) {
    checkIsNewest("its indexes");
    return Maintenance.run(options, verb, arguments);
  }

  private void checkIsNewest(String changed) {
    if (options.version() != LakemarkOptions.NEWEST) {
      throw new LakemarkException.InvalidInput(
          name() + " can only be read; name it without a version to change " + changed);
    }
  }

  @Override
  public boolean indexExists(String indexName) {
    return Arrays.stream(listIndexes()).anyMatch(index -> index.indexName().equals(indexName));
  }

  @Override
  public TableIndex[] listIndexes() {
    List<TableIndex> indexes = new ArrayList<>();
    for (JsonNode index : Maintenance.run(options, "indexes", Map.of())) {
      Properties ofIndex = new Properties();
      ofIndex.setProperty("encoding", index.get("encoding").asText());
      index
          .get("options")
          .forEach(each -> ofIndex.setProperty(each.get(0).asText(), each.get(1).asText()));
      List<NamedReference> columns = new ArrayList<>();
      index.get("columns").forEach(column -> columns.add(reference(column.asText())));
      Map<NamedReference, Properties> ofColumns = new HashMap<>();
      columns.forEach(column -> ofColumns.put(column, new Properties()));
      indexes.add(
          new TableIndex(
              index.get("name").asText(),
              index.get("kind").asText(),
              columns.toArray(new NamedReference[0]),
              ofColumns,
              ofIndex));
    }
    return indexes.toArray(new TableIndex[0]);
  }

  /** A column, or the way to a field, as the native side reads it. */
  /** The column or field of a text, as {@link #text} writes it. */
  private NamedReference reference(String text) {
    if (Arrays.asList(schema.fieldNames()).contains(text)) {
      return LakemarkScan.reference(text);
    }
    Matcher part = PART.matcher(text);
    List<String> names = new ArrayList<>();
    while (part.find()) {
      String quoted = part.group(1);
      names.add(quoted == null ? part.group() : quoted.replace("\"\"", "\""));
    }
    return Expressions.column(
        names.stream().map(LakemarkScan::quoted).collect(Collectors.joining(".")));
  }

  private String text(NamedReference column) {
    String[] names = column.fieldNames();
    // A column may be called as the way to a field is written.
    boolean isPlain =
        names.length == 1
            || (Arrays.stream(names).noneMatch(each -> each.matches(".*[.\"].*"))
                && !Arrays.asList(schema.fieldNames()).contains(String.join(".", names)));
    return isPlain
        ? String.join(".", names)
        : String.join(
            ".", Arrays.stream(names).map(each -> '"' + each.replace("\"", "\"\"") + '"').toList());
  }
}

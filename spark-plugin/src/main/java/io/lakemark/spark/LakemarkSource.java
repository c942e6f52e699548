package io.lakemark.spark;

import io.lakemark.spark.catalog.LakemarkTable;
import io.lakemark.spark.read.NativeTable;
import io.lakemark.spark.storage.StorageSettings;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The source behind {@code spark.read().format("lakemark").load(path)}, and behind {@code
 * frame.write().format("lakemark").mode("append").save(path)} for tables with a key.
 *
 * <p>Options:
 *
 * <ul>
 *   <li>{@code path}: a folder, file, glob or Delta table;
 *   <li>{@code store}: where the indexes are, if not in {@code _lakemark/} beside the data;
 *   <li>{@code use_index}: {@code false} reads as if there were no indexes;
 *   <li>{@code version}: the version to read; of a Delta table Delta's, else the number of a
 *       manifest, as {@code lakemark history} lists them;
 *   <li>{@code storage.…} and Hadoop's {@code fs.…}: how the storage is reached, over what the
 *       session says;
 *   <li>{@code operation}: what a write does with its rows, {@code insert} if nothing is said,
 *       {@code upsert}, {@code update} or {@code delete};
 *   <li>{@code txn_app_id} and {@code txn_version}: a name and number under which a write is made
 *       once.
 * </ul>
 */
public final class LakemarkSource implements TableProvider, DataSourceRegister {
  /** Made by Spark, by reflection. */
  public LakemarkSource() {}

  @Override
  public String shortName() {
    return "lakemark";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    try (NativeTable table = NativeTable.open(LakemarkOptions.of(options.asCaseSensitiveMap()))) {
      return table.schema();
    }
  }

  /** A schema may be given, for example to leave out a column whose type Spark lacks. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    Map<String, String> shown = new HashMap<>(properties);
    // Whoever describes the table need not see its credentials.
    shown.keySet().removeIf(StorageSettings::isOption);
    return new LakemarkTable(LakemarkOptions.of(properties), schema, shown);
  }
}

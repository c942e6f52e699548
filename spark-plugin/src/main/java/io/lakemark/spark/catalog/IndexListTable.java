package io.lakemark.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Maintenance;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The indexes of a table, one in a row: what {@code lakemark index list} shows. */
public final class IndexListTable implements SupportsRead {
  /** What the name of a table is followed by. */
  public static final String SUFFIX = "$indexes";

  private static final StructType SCHEMA =
      StructType.fromDDL(
          "name STRING, kind STRING, encoding STRING, chosen_by STRING, column STRING,"
              + " data_type STRING, files_covered BIGINT, files_total BIGINT, coverage DOUBLE,"
              + " rows BIGINT, bytes BIGINT, predicted_bytes BIGINT");

  private final LakemarkOptions table;

  /** Of the table whose name {@link #SUFFIX} follows. Only a scan looks for its indexes. */
  public IndexListTable(LakemarkOptions table) {
    this.table = table;
  }

  @Override
  public String name() {
    return "lakemark " + table.path() + SUFFIX;
  }

  @Override
  @SuppressWarnings("deprecation") // Spark's newer method, columns(), calls it.
  public StructType schema() {
    return SCHEMA;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return () -> {
      List<JsonNode> indexes = new ArrayList<>();
      Maintenance.run(table, "indexes", Map.of()).forEach(indexes::add);
      return JsonRows.scan(name(), SCHEMA, indexes);
    };
  }
}

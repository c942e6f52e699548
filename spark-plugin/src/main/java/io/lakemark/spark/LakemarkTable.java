package io.lakemark.spark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of Parquet files, or a Delta table, with its marks. Holds nothing native: each query pins
 * its own state.
 */
public final class LakemarkTable implements SupportsRead {
  private final LakemarkOptions options;
  private final StructType schema;
  private final Map<String, String> properties;

  LakemarkTable(LakemarkOptions options, StructType schema, Map<String, String> properties) {
    this.options = options;
    this.schema = schema;
    this.properties = Map.copyOf(properties);
  }

  @Override
  public String name() {
    return options.description();
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap scanOptions) {
    return new LakemarkScanBuilder(options, schema);
  }
}

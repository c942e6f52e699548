package io.lakemark.spark;

import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.types.StructType;

/** A planned scan. Everything was read from the index on the driver; tasks get row ranges. */
final class LakemarkScan implements Scan, Batch, SupportsReportStatistics {
  private final String description;
  private final StructType columns;
  private final ScanPlan plan;
  private final Map<NamedReference, ColumnStatistics> columnStatistics;

  LakemarkScan(
      String description,
      StructType columns,
      ScanPlan plan,
      Map<NamedReference, ColumnStatistics> columnStatistics) {
    this.description = description;
    this.columns = columns;
    this.plan = plan;
    this.columnStatistics = columnStatistics;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    String planned =
        String.format(
            "%s, splits: %d, row groups skipped: %d of %d, rows certain: %d",
            description,
            plan.splits().size(),
            plan.rowGroupsSkipped(),
            plan.rowGroupsTotal(),
            plan.rowsCertain());
    return plan.rowsPending() == 0 ? planned : planned + ", rows pending: " + plan.rowsPending();
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return plan.splits().toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new LakemarkReaderFactory(plan.scan(), columns);
  }

  /**
   * Said outright, because Spark would otherwise plan all partitions early just to ask each of
   * them.
   */
  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Statistics estimateStatistics() {
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(plan.bytes());
      }

      @Override
      public OptionalLong numRows() {
        return plan.rows();
      }

      @Override
      public Map<NamedReference, ColumnStatistics> columnStats() {
        return columnStatistics;
      }
    };
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return new CustomMetric[] {
      new LakemarkMetrics.RowGroupsSkipped(),
      new LakemarkMetrics.RowsCertain(),
      new LakemarkMetrics.RowsPending()
    };
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return new CustomTaskMetric[] {
      LakemarkMetrics.value(LakemarkMetrics.ROW_GROUPS_SKIPPED, plan.rowGroupsSkipped()),
      LakemarkMetrics.value(LakemarkMetrics.ROWS_CERTAIN, plan.rowsCertain()),
      LakemarkMetrics.value(LakemarkMetrics.ROWS_PENDING, plan.rowsPending())
    };
  }
}

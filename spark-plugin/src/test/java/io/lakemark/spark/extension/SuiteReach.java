package io.lakemark.spark.extension;

import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.util.QueryExecutionListener;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reports for each query of Spark's own test suites how many scans of Parquet files it had, and how
 * many of these were ours: scans of Spark's that an index let read less, and scans of the
 * connector.
 */
public final class SuiteReach implements QueryExecutionListener {
  private static final String OURS = "io.lakemark.spark.";

  /** Made by Spark, by reflection. */
  public SuiteReach() {}

  @Override
  public void onSuccess(String name, QueryExecution query, long nanos) {
    Counts counts = new Counts();
    counts.add(query.executedPlan());
    LogicalPlan plan = query.optimizedPlan();
    counts.add(plan);
    CollectionConverters.asJava(plan.subqueriesAll()).forEach(counts::add);
    SuiteReport.add(
        Map.of(
            "query", name,
            "scans", counts.scans,
            "narrowed", counts.narrowed,
            "connector", counts.connector));
  }

  @Override
  public void onFailure(String name, QueryExecution query, Exception failure) {}

  private static final class Counts {
    private int scans;
    private int narrowed;
    private int connector;

    void add(LogicalPlan plan) {
      for (LogicalPlan leaf : CollectionConverters.asJava(plan.collectLeaves())) {
        if (leaf instanceof DataSourceV2ScanRelation scan
            && scan.scan().getClass().getName().startsWith(OURS)) {
          connector++;
        }
      }
    }

    void add(SparkPlan plan) {
      if (plan instanceof AdaptiveSparkPlanExec adaptive) {
        add(adaptive.executedPlan());
      } else if (plan instanceof QueryStageExec stage) {
        add(stage.plan());
      } else if (plan instanceof FileSourceScanExec scan
          && scan.relation().fileFormat() instanceof ParquetFileFormat) {
        scans++;
        if (scan.relation().location() instanceof LakemarkFileIndex) {
          narrowed++;
        }
      }
      CollectionConverters.asJava(plan.children()).forEach(this::add);
      CollectionConverters.asJava(plan.subqueries()).forEach(this::add);
    }
  }
}

package io.lakemark.spark.extension;

import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import scala.jdk.javaapi.CollectionConverters;

/** Marks the folders of Parquet files that a plan reads, and changes no plan. */
final class SuiteScans extends Rule<SparkPlan> {
  @Override
  public SparkPlan apply(SparkPlan plan) {
    for (SparkPlan leaf : CollectionConverters.asJava(plan.collectLeaves())) {
      if (leaf instanceof FileSourceScanExec scan
          && scan.relation().fileFormat().getClass() == ParquetFileFormat.class) {
        mark(scan.relation());
      }
    }
    return plan;
  }

  private static void mark(HadoopFsRelation files) {
    Set<Path> tables = new LinkedHashSet<>();
    for (Path path : CollectionConverters.asJava(files.location().rootPaths())) {
      // The last is the farthest up: the folder of a file, above its partitions.
      TableRoots.of(path, false).stream().reduce((near, far) -> far).ifPresent(tables::add);
    }
    for (Path table : tables) {
      String scheme = table.toUri().getScheme();
      if (scheme == null || scheme.equals("file")) {
        SuiteFolders.mark(java.nio.file.Path.of(table.toUri().getPath()), files.dataSchema());
      }
    }
  }
}

package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Function;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.types.StructType;

/**
 * A planned scan. Everything was read from the index on the driver; tasks get row ranges.
 *
 * <p>When a join has read the keys of its other side, Spark hands them over, and the scan is
 * planned once more, of the same state of the table. The join goes on testing every row. So the
 * scan may read more than the rows with these keys, be it because the indexes have no answer or
 * because reading is cheaper. Each set of keys takes the place of the one before: two parts of a
 * plan may share a scan.
 */
public final class LakemarkScan
    implements Batch, SupportsReportStatistics, SupportsRuntimeV2Filtering, ExplainSource {
  private final PushedDown pushed;
  private final StructType table;
  private final StructType columns;
  private final ScanPlan planned;
  private final Map<NamedReference, ColumnStatistics> columnStatistics;
  private final JoinKeys joinKeys;
  private final Identity identity;
  private final Optional<LargeScans.Place> place;
  private volatile ScanPlan plan;

  /**
   * What a scan does with the keys of joins.
   *
   * @param columns those whose keys are worth handing over
   * @param scans the scans of the plan, of which the large ones take keys; empty if this one takes
   *     them whatever its size is
   * @param planner plans again when keys are known; empty if nothing is won
   */
  record JoinKeys(
      List<String> columns,
      Optional<LargeScans> scans,
      Function<Predicate[], Optional<ScanPlan>> planner) {}

  /**
   * Makes a scan.
   *
   * @param table all columns of the table
   * @param columns those that are read
   * @param joinKeys what it does with the keys of joins
   */
  LakemarkScan(
      PushedDown pushed,
      StructType table,
      StructType columns,
      ScanPlan planned,
      Map<NamedReference, ColumnStatistics> columnStatistics,
      JoinKeys joinKeys) {
    this.pushed = pushed;
    this.table = table;
    this.columns = columns;
    this.planned = planned;
    this.plan = planned;
    this.columnStatistics = columnStatistics;
    this.joinKeys = joinKeys;
    this.identity = new Identity(pushed, columns, planned);
    this.place =
        mayTakeJoinKeys()
            ? joinKeys.scans().map(scans -> scans.add(identity, bytesOfColumns(planned)))
            : Optional.empty();
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return pushed.line() + ", " + plan.line();
  }

  @Override
  public ObjectNode explainJson() {
    ScanPlan now = plan;
    ObjectNode facts = pushed.facts();
    facts.put("splits", now.splits().size()).put("bytes", bytesOfColumns(now));
    now.rows().ifPresentOrElse(rows -> facts.put("rows", rows), () -> facts.putNull("rows"));
    facts.put("rows_index_only", now.rowsIndexOnly()).put("covering_index", now.coveringIndex());
    ArrayNode learned = facts.put("rows_buffered", now.rowsBuffered()).putArray("runtime_filters");
    JsonNode leaves = now.report().get("leaves");
    // What Spark learned later comes after the filters of the first plan.
    for (int at = planned.report().get("leaves").size(); at < leaves.size(); at++) {
      learned.add(leaves.get(at).get("text"));
    }
    facts.set("report", now.report());
    return facts.put("report_text", now.reportText());
  }

  /** Whether keys of a join are worth handing over, if the scan is large enough. */
  boolean mayTakeJoinKeys() {
    return !joinKeys.columns().isEmpty();
  }

  /** Whether Spark hands keys of joins over; known when all scans of the plan are planned. */
  public boolean takesJoinKeys() {
    return mayTakeJoinKeys() && place.map(LargeScans.Place::isLarge).orElse(true);
  }

  /** Asked when all scans of the plan are planned. */
  @Override
  public NamedReference[] filterAttributes() {
    if (!takesJoinKeys()) {
      return new NamedReference[0];
    }
    return joinKeys.columns().stream().map(LakemarkScan::reference).toArray(NamedReference[]::new);
  }

  /** {@link Expressions#column} takes text in SQL's form. */
  public static NamedReference reference(String column) {
    return Expressions.column(quoted(column));
  }

  /** A name in SQL's form, whatever it has in it. */
  public static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  @Override
  public void filter(Predicate[] predicates) {
    plan = joinKeys.planner().apply(predicates).orElse(planned);
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
   * Said outright, because Spark would otherwise plan all partitions early just to look at each of
   * them.
   */
  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  /**
   * Of the columns that are read: by all bytes of the rows Spark would sort and exchange what it
   * can broadcast.
   */
  @Override
  public Statistics estimateStatistics() {
    ScanPlan now = plan;
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(bytesOfColumns(now));
      }

      @Override
      public OptionalLong numRows() {
        return now.rows();
      }

      @Override
      public Map<NamedReference, ColumnStatistics> columnStats() {
        return columnStatistics;
      }
    };
  }

  /** Of the bytes of all columns the share of those that are read, by their types. */
  private long bytesOfColumns(ScanPlan read) {
    return Math.round(read.bytes() * width(columns) / width(table));
  }

  /** Bytes of a row as Spark guesses them of its own tables, by the types alone. */
  private static double width(StructType columns) {
    return 8.0 + columns.defaultSize();
  }

  /**
   * Scans of the same tasks give the same rows, so that Spark computes what is above them once and
   * reuses its exchange. What Spark learns while a query runs it compares by itself.
   */
  @Override
  public boolean equals(Object other) {
    return other instanceof LakemarkScan scan && identity.equals(scan.identity);
  }

  @Override
  public int hashCode() {
    return identity.hashCode();
  }

  /** What two scans have in common that give the same rows. */
  private record Identity(PushedDown pushed, StructType columns, ScanPlan planned) {
    @Override
    public boolean equals(Object other) {
      return other instanceof Identity identity
          && pushed.equals(identity.pushed)
          && columns.equals(identity.columns)
          && planned.hasTasksOf(identity.planned);
    }

    @Override
    public int hashCode() {
      return Objects.hash(pushed, columns, planned.scan());
    }
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return new CustomMetric[] {
      new LakemarkMetrics.RowGroupsSkipped(),
      new LakemarkMetrics.RowsExact(),
      new LakemarkMetrics.RowsBuffered(),
      new LakemarkMetrics.RowsIndexOnly(),
      new LakemarkMetrics.IndexBytes()
    };
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    ScanPlan now = plan;
    return new CustomTaskMetric[] {
      LakemarkMetrics.value(LakemarkMetrics.ROW_GROUPS_SKIPPED, now.rowGroupsSkipped()),
      LakemarkMetrics.value(LakemarkMetrics.ROWS_EXACT, now.rowsExact()),
      LakemarkMetrics.value(LakemarkMetrics.ROWS_BUFFERED, now.rowsBuffered()),
      LakemarkMetrics.value(LakemarkMetrics.ROWS_INDEX_ONLY, now.rowsIndexOnly()),
      LakemarkMetrics.value(LakemarkMetrics.INDEX_BYTES, now.indexBytesRead())
    };
  }
}

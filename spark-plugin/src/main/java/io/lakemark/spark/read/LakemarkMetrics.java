package io.lakemark.spark.read;

import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What the Spark UI shows of a scan. Public, because Spark makes instances by reflection. */
public final class LakemarkMetrics {
  static final String ROW_GROUPS_SKIPPED = "rowGroupsSkipped";
  static final String ROWS_EXACT = "rowsExact";
  static final String ROWS_BUFFERED = "rowsBuffered";
  static final String ROWS_INDEX_ONLY = "rowsIndexOnly";
  static final String INDEX_BYTES = "indexBytesRead";

  private LakemarkMetrics() {}

  static CustomTaskMetric value(String name, long value) {
    return new CustomTaskMetric() {
      @Override
      public String name() {
        return name;
      }

      @Override
      public long value() {
        return value;
      }
    };
  }

  /** Row groups that no task reads. */
  public static final class RowGroupsSkipped extends CustomSumMetric {
    /** Made by Spark, by reflection. */
    public RowGroupsSkipped() {}

    @Override
    public String name() {
      return ROW_GROUPS_SKIPPED;
    }

    @Override
    public String description() {
      return "row groups skipped by the index";
    }
  }

  /** Exact rows: the indexes selected them for sure. */
  public static final class RowsExact extends CustomSumMetric {
    /** Made by Spark, by reflection. */
    public RowsExact() {}

    @Override
    public String name() {
      return ROWS_EXACT;
    }

    @Override
    public String description() {
      return "exact rows by the index";
    }
  }

  /** Rows that are in no data file yet, of which the indexes know nothing. */
  public static final class RowsBuffered extends CustomSumMetric {
    /** Made by Spark, by reflection. */
    public RowsBuffered() {}

    @Override
    public String name() {
      return ROWS_BUFFERED;
    }

    @Override
    public String description() {
      return "buffered rows";
    }
  }

  /** Index-only rows: an index includes the columns, so that no task reads them in a data file. */
  public static final class RowsIndexOnly extends CustomSumMetric {
    /** Made by Spark, by reflection. */
    public RowsIndexOnly() {}

    @Override
    public String name() {
      return ROWS_INDEX_ONLY;
    }

    @Override
    public String description() {
      return "index-only rows";
    }
  }

  /** Bytes of index files that were read to plan the scan. */
  public static final class IndexBytes extends CustomSumMetric {
    /** Made by Spark, by reflection. */
    public IndexBytes() {}

    @Override
    public String name() {
      return INDEX_BYTES;
    }

    @Override
    public String description() {
      return "bytes of index files read";
    }
  }
}

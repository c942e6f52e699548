package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The filters of a scan as a request to the indexes.
 *
 * @param request the filters for a probe, if indexes could rule anything out by them
 * @param columns the columns that it may name
 */
record ScanFilter(Optional<String> request, StructType columns) {
  /** Tags a column of a catalog whose files may lack it and then have another value than NULL. */
  private static final String EXISTS_DEFAULT = "EXISTS_DEFAULT";

  /**
   * How Spark reads dates and timestamps of the calendar before 1582, and of other writers. Where
   * Spark changes them, indexes do not have the values that Spark sees.
   */
  private static final List<String> REBASE_MODES =
      List.of("datetimeRebaseModeInRead", "int96RebaseModeInRead");

  private static final Set<String> REBASE_OPTIONS = Set.of("datetimerebasemode", "int96rebasemode");

  /** The filters of a scan, all of which must hold, by the names that the scan's columns have. */
  static ScanFilter of(HadoopFsRelation files, Seq<Expression> filters) {
    StructType columns = columns(files);
    List<Predicate> predicates =
        CollectionConverters.asJava(filters).stream()
            .filter(Expression::deterministic)
            .map(ScanFilter::translated)
            .toList();
    return new ScanFilter(RowGroupSelection.request(columns, predicates), columns);
  }

  /**
   * The columns of the files whose values are what the files have: no partition columns, no
   * defaults, no dates and timestamps that Spark changes as it reads them.
   */
  private static StructType columns(HadoopFsRelation files) {
    Set<String> partitions =
        Arrays.stream(files.partitionSchema().fieldNames())
            .map(name -> name.toLowerCase(Locale.ROOT))
            .collect(Collectors.toSet());
    boolean changesMoments = changesMoments(files);
    return new StructType(
        Arrays.stream(files.dataSchema().fields())
            .filter(field -> !partitions.contains(field.name().toLowerCase(Locale.ROOT)))
            .filter(field -> !field.metadata().contains(EXISTS_DEFAULT))
            .filter(field -> !(changesMoments && hasMoment(field.dataType())))
            .toArray(StructField[]::new));
  }

  /**
   * Whether values of a type are dates or timestamps, or structs with such. Lists do not matter, as
   * no filter on their elements is translated.
   */
  private static boolean hasMoment(DataType type) {
    return type instanceof DateType
        || type instanceof TimestampType
        || type instanceof TimestampNTZType
        || (type instanceof StructType struct
            && Arrays.stream(struct.fields()).anyMatch(field -> hasMoment(field.dataType())));
  }

  private static boolean changesMoments(HadoopFsRelation files) {
    SparkSession session = files.sparkSession();
    boolean bySession =
        REBASE_MODES.stream()
            .map(mode -> session.conf().get("spark.sql.parquet." + mode))
            .anyMatch(mode -> !mode.equalsIgnoreCase("CORRECTED"));
    boolean byOption =
        CollectionConverters.asJava(files.options()).keySet().stream()
            .anyMatch(option -> REBASE_OPTIONS.contains(option.toLowerCase(Locale.ROOT)));
    return bySession
        || byOption
        || session.conf().get("spark.sql.parquet.int96TimestampConversion").equals("true");
  }

  /** As Spark hands filters to sources, and part by part where it would give up on the whole. */
  private static Predicate translated(Expression filter) {
    if (filter instanceof And and) {
      return new org.apache.spark.sql.connector.expressions.filter.And(
          translated(and.left()), translated(and.right()));
    } else if (filter instanceof Or or) {
      return new org.apache.spark.sql.connector.expressions.filter.Or(
          translated(or.left()), translated(or.right()));
    } else if (filter instanceof Not not) {
      return new org.apache.spark.sql.connector.expressions.filter.Not(translated(not.child()));
    }
    Option<Predicate> whole = DataSourceV2Strategy$.MODULE$.translateFilterV2(filter);
    return whole.isDefined() ? whole.get() : new Unknown(filter);
  }

  /** What only Spark can evaluate: it may be true for any row. */
  private static final class Unknown extends Predicate {
    private static final long serialVersionUID = 1L;

    private final String text;

    Unknown(Expression filter) {
      super("UNKNOWN", new org.apache.spark.sql.connector.expressions.Expression[0]);
      this.text = filter.toString();
    }

    @Override
    public String toString() {
      return text;
    }
  }
}

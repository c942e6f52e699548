package io.lakemark.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Decides how much of a query the marks answer.
 *
 * <p>The table is pinned once for the whole query. A filter that the marks answer for every row is
 * taken off Spark; otherwise the marks only narrow what is read, and Spark evaluates all filters
 * again. A count without groups is answered here if no filter is left to Spark.
 */
final class LakemarkScanBuilder
    implements SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final LakemarkOptions options;
  private final StructType schema;
  private final PredicateTranslator translator;

  private NativeTable table;
  private StructType columns;
  private String filter = PredicateTranslator.ALL_ROWS;
  private Predicate[] pushed = new Predicate[0];
  private int limit = -1;
  private Aggregation aggregation;
  private OptionalLong count = OptionalLong.empty();

  LakemarkScanBuilder(LakemarkOptions options, StructType schema) {
    this.options = options;
    this.schema = schema;
    this.columns = schema;
    this.translator = new PredicateTranslator(schema);
  }

  private NativeTable table() {
    if (table == null) {
      table = NativeTable.open(options);
    }
    return table;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> taken = new ArrayList<>();
    List<Predicate> left = new ArrayList<>();
    for (Predicate predicate : predicates) {
      (translator.isUseful(predicate) ? taken : left).add(predicate);
    }
    pushed = taken.toArray(new Predicate[0]);
    if (pushed.length > 0) {
      filter = translator.conjunction(taken);
      if (!table().isCertain(filter)) {
        return predicates;
      }
    }
    return left.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.clone();
  }

  /** Columns are pruned whole: a pruned struct is read with all its fields, which Spark allows. */
  @Override
  public void pruneColumns(StructType required) {
    Set<String> names = Set.of(required.fieldNames());
    columns =
        new StructType(
            Arrays.stream(schema.fields())
                .filter(field -> names.contains(field.name()))
                .toArray(StructField[]::new));
  }

  /**
   * Asked only if no filter is left to Spark. Spark cuts at the limit itself; fewer splits are
   * planned.
   */
  @Override
  public boolean pushLimit(int newLimit) {
    limit = newLimit;
    return true;
  }

  @Override
  public boolean supportCompletePushDown(Aggregation wanted) {
    boolean countsOnly =
        wanted.groupByExpressions().length == 0
            && wanted.aggregateExpressions().length > 0
            && Arrays.stream(wanted.aggregateExpressions()).allMatch(CountStar.class::isInstance);
    if (countsOnly) {
      count = table().count(filter);
    }
    return countsOnly && count.isPresent();
  }

  @Override
  public boolean pushAggregation(Aggregation wanted) {
    if (!supportCompletePushDown(wanted)) {
      return false;
    }
    aggregation = wanted;
    return true;
  }

  @Override
  public Scan build() {
    try (NativeTable pinned = table()) {
      if (aggregation != null) {
        return new LakemarkCountScan(description(), count.getAsLong(), functions(aggregation));
      }
      ScanPlan plan = pinned.plan(filter, columns);
      return new LakemarkScan(description(), columns, limit < 0 ? plan : plan.limited(limit));
    } finally {
      table = null;
    }
  }

  private static int functions(Aggregation aggregation) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    return functions.length;
  }

  private String description() {
    String filters =
        Arrays.stream(pushed).map(Predicate::toString).collect(Collectors.joining(", "));
    return "lakemark " + options.path() + " PushedFilters: [" + filters + "]";
  }
}

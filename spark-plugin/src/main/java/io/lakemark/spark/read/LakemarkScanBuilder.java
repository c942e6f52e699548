package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.LakemarkOptions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Decides how much of a query the indexes answer.
 *
 * <p>The table is pinned once for the whole query. A filter that the indexes answer for every row
 * is taken off Spark; otherwise the indexes only narrow what is read, and Spark evaluates all
 * filters again. Aggregates are answered here, whole, if no filter is left to Spark and the indexes
 * know every row. Buffered rows, which are in no data file yet, are tested themselves.
 */
public final class LakemarkScanBuilder
    implements SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownLimit,
        SupportsPushDownTopN,
        SupportsPushDownAggregates {
  /** The keys of more rows than this are seldom worth a search. */
  private static final long MOST_KEYS = 1 << 16;

  private final LakemarkOptions options;
  private final StructType schema;
  private final PredicateTranslator translator;

  /** The columns by which Spark may filter once it knows the keys of a join. */
  private final Set<String> filterable;

  /** What the rows are read for, if they are to be changed. */
  private final Optional<RowsForChange> change;

  private final JoinContext joins;

  private NativeTable table;
  private StructType columns;
  private String filter = PredicateTranslator.ALL_ROWS;
  private Predicate[] pushed = new Predicate[0];
  private int limit = -1;
  private Optional<ObjectNode> top = Optional.empty();
  private String topText = "";
  private Aggregation lastAggregation;
  private Optional<LakemarkLocalRows> answer = Optional.empty();
  private boolean isIndexOnly;

  /** For a query: Spark may filter by any column once it knows the keys of a join. */
  public LakemarkScanBuilder(LakemarkOptions options, StructType schema, JoinContext joins) {
    this(options, schema, Set.of(schema.fieldNames()), Optional.empty(), joins);
  }

  /** For a statement that changes the rows that it reads, and is filtered by some columns alone. */
  public LakemarkScanBuilder(
      LakemarkOptions options,
      StructType schema,
      Set<String> filterable,
      Optional<RowsForChange> change) {
    this(options, schema, filterable, change, JoinContext.NOT_JOINED);
  }

  private LakemarkScanBuilder(
      LakemarkOptions options,
      StructType schema,
      Set<String> filterable,
      Optional<RowsForChange> change,
      JoinContext joins) {
    this.options = options;
    this.schema = schema;
    this.filterable = filterable;
    this.change = change;
    this.joins = joins;
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
      // Spark logs what a source took.
      boolean isTaken = PredicateTranslator.hasName(predicate) && translator.isUseful(predicate);
      (isTaken ? taken : left).add(predicate);
    }
    if (joins.leavesNullTests()) {
      List<Predicate> nullTests = taken.stream().filter(LakemarkScanBuilder::isNullTest).toList();
      if (leaveMostRows(nullTests)) {
        taken.removeAll(nullTests);
        left.addAll(nullTests);
      }
    }
    pushed = taken.toArray(new Predicate[0]);
    if (pushed.length > 0) {
      filter = translator.conjunction(taken);
      if (!table().isExact(filter)) {
        return predicates;
      }
      if (joins.isJoined()
          && isSelective()
          && table().count(filter).orElse(MOST_KEYS) < MOST_KEYS) {
        taken.stream().filter(predicate -> !isNullTest(predicate)).forEach(left::add);
      }
    }
    return left.toArray(new Predicate[0]);
  }

  /** Whether tests for NULL select at least half of the rows, or nobody knows. */
  private boolean leaveMostRows(List<Predicate> nullTests) {
    if (nullTests.isEmpty()) {
      return false;
    }
    OptionalLong all = table().count(PredicateTranslator.ALL_ROWS);
    OptionalLong selected = table().count(translator.conjunction(nullTests));
    return all.isEmpty() || selected.isEmpty() || selected.getAsLong() >= all.getAsLong() / 2;
  }

  /**
   * Spark hands the keys of a side of a join to the other side only if it sees a filter on it. So
   * what is exact stays in the plan where the rows are few, which costs little.
   */
  private boolean isSelective() {
    return !Arrays.stream(pushed).allMatch(LakemarkScanBuilder::isNullTest);
  }

  private static boolean isNullTest(Predicate predicate) {
    return predicate.name().equals("IS_NULL") || predicate.name().equals("IS_NOT_NULL");
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.clone();
  }

  /** Structs have only the fields that are needed, also inside of lists and maps. */
  @Override
  public void pruneColumns(StructType required) {
    Set<String> names = Set.of(schema.fieldNames());
    columns =
        new StructType(
            Arrays.stream(required.fields())
                .filter(field -> names.contains(field.name()))
                .toArray(StructField[]::new));
  }

  /**
   * Called only if no filter is left to Spark. Spark cuts at the limit itself; fewer splits are
   * planned.
   */
  @Override
  public boolean pushLimit(int newLimit) {
    limit = newLimit;
    return true;
  }

  /** As for a limit. Spark sorts what is read, which has all rows that may be among the first. */
  @Override
  public boolean pushTopN(SortOrder[] orders, int rows) {
    top = isIndexOnly ? Optional.empty() : translator.first(orders, rows);
    topText = top.isPresent() ? rows + " by " + orders[0] : "";
    return top.isPresent();
  }

  /** Neither a limit nor an order is done here alone. */
  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  /** Spark calls this twice for the same aggregates; the indexes are probed once. */
  @Override
  @SuppressWarnings("ReferenceEquality") // The same object comes again; equal ones may be others.
  public boolean supportCompletePushDown(Aggregation wanted) {
    if (lastAggregation != wanted) {
      lastAggregation = wanted;
      answer = answer(wanted);
    }
    return answer.isPresent();
  }

  private Optional<LakemarkLocalRows> answer(Aggregation wanted) {
    AggregateFunc[] functions = wanted.aggregateExpressions();
    boolean countsOnly =
        wanted.groupByExpressions().length == 0
            && functions.length > 0
            && Arrays.stream(functions).allMatch(CountStar.class::isInstance);
    if (countsOnly) {
      OptionalLong count = table().count(filter);
      return count.isPresent()
          ? Optional.of(LakemarkLocalRows.counts(count.getAsLong(), functions.length))
          : Optional.empty();
    }
    return new AggregateTranslator(schema, table().storedSchema())
        .request(wanted)
        .flatMap(request -> table().aggregate(filter, request));
  }

  @Override
  public boolean pushAggregation(Aggregation wanted) {
    isIndexOnly = supportCompletePushDown(wanted);
    return isIndexOnly;
  }

  @Override
  public Scan build() {
    NativeTable pinned = table();
    table = null;
    boolean isKept = false;
    try {
      if (isIndexOnly) {
        tell(pinned, UnknownColumns.NONE);
        return answer.orElseThrow().scan(pushedDown());
      }
      LakemarkScan scan = scan(pinned);
      if (scan.mayTakeJoinKeys()) {
        RecentTables.keep(pinned);
        isKept = true;
      }
      return scan;
    } finally {
      if (!isKept) {
        pinned.close();
      }
    }
  }

  /** Reports what it sees to a statement that changes rows, if the table takes changes. */
  private void tell(NativeTable pinned, UnknownColumns unknown) {
    if (change.isPresent()) {
      pinned
          .readPoint()
          .ifPresent(point -> change.get().seen().accept(new ReadState(point, unknown)));
    }
  }

  private LakemarkScan scan(NativeTable pinned) {
    String asked = filter;
    StructType read = columns;
    // Keys are learned on other threads, which may know no session.
    PlanRequest wanted = new PlanRequest(read, SplitSizes.ofSession(), change);
    ScanPlan plan = pinned.plan(asked, wanted, top);
    tell(pinned, plan.unknown());
    return new LakemarkScan(
        pushedDown(),
        schema,
        read,
        limit < 0 ? plan : plan.limited(limit),
        IndexStatistics.of(pinned, asked, read),
        new LakemarkScan.JoinKeys(
            // What a limit left over are no rows to choose from.
            limit < 0 && top.isEmpty() ? filterColumns(plan) : List.of(),
            // A statement that changes rows reads them to write them again, whatever is joined.
            change.isPresent() ? Optional.empty() : Optional.of(PlannedQuery.ofThread().scans()),
            predicates ->
                translator
                    .learned(predicates)
                    .flatMap(learned -> pinned.planAgain(asked, wanted, learned))));
  }

  /** The columns that are read whose values the indexes can be probed for. */
  private List<String> filterColumns(ScanPlan plan) {
    return Arrays.stream(columns.fields())
        .filter(column -> PredicateTranslator.isComparable(column.dataType()))
        .map(StructField::name)
        .filter(name -> filterable.contains(name) && plan.indexedColumns().contains(name))
        .toList();
  }

  private PushedDown pushedDown() {
    List<String> aggregates =
        isIndexOnly
            ? Stream.of(
                    lastAggregation.groupByExpressions(), lastAggregation.aggregateExpressions())
                .flatMap(Arrays::stream)
                .map(Expression::describe)
                .toList()
            : List.of();
    List<String> filters = Arrays.stream(pushed).map(Predicate::toString).toList();
    return new PushedDown(options.description(), filters, aggregates, limit, topText);
  }
}

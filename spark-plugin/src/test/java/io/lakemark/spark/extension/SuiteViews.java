package io.lakemark.spark.extension;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Has temporary views over rows of their own read Parquet files with these rows, in Spark's own
 * test suites: most tables of the suites are such views.
 *
 * <p>Before a statement is parsed, the views are looked at that the session has. One that is new is
 * written as a file with two rows in a row group, and replaced by a view over that file. Its rows
 * keep their order. What cannot be written, or comes back as something else, stays what it is.
 */
final class SuiteViews implements ParserInterface {
  /** Where files are written, as a system property. */
  static final String FOLDER = "lakemark.suites.folder";

  /** What a view over rows of its own is made of, by the names of Spark's classes. */
  private static final Set<String> OWN_ROWS =
      Set.of("LocalRelation", "OneRowRelation", "LogicalRDD", "Range", "CTERelationRef");

  private final SparkSession session;
  private final ParserInterface parser;
  private final boolean readsByConnector = SuiteRun.ofProcess() == SuiteRun.CONNECTOR;
  private final boolean marks = SuiteRun.ofProcess() != SuiteRun.FILES;
  private final Map<String, TemporaryViewRelation> known = new HashMap<>();
  private boolean isBusy;

  /** The parser of a session, which looks at the session's views before it parses a statement. */
  SuiteViews(SparkSession session, ParserInterface parser) {
    this.session = session;
    this.parser = parser;
  }

  @Override
  public LogicalPlan parsePlan(String text) throws ParseException {
    settle();
    return parser.parsePlan(text);
  }

  @Override
  public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters)
      throws ParseException {
    settle();
    return parser.parsePlanWithParameters(text, parameters);
  }

  @Override
  public LogicalPlan parseQuery(String text) throws ParseException {
    return parser.parseQuery(text);
  }

  @Override
  public Expression parseExpression(String text) throws ParseException {
    return parser.parseExpression(text);
  }

  @Override
  public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return parser.parseTableIdentifier(text);
  }

  @Override
  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return parser.parseFunctionIdentifier(text);
  }

  @Override
  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    return parser.parseMultipartIdentifier(text);
  }

  @Override
  public StructType parseRoutineParam(String text) throws ParseException {
    return parser.parseRoutineParam(text);
  }

  @Override
  public StructType parseTableSchema(String text) throws ParseException {
    return parser.parseTableSchema(text);
  }

  @Override
  public DataType parseDataType(String text) throws ParseException {
    return parser.parseDataType(text);
  }

  private synchronized void settle() {
    // What is done here has statements parsed in turn.
    if (isBusy) {
      return;
    }
    isBusy = true;
    try {
      SessionCatalog catalog = session.sessionState().catalog();
      for (String name : CollectionConverters.asJava(catalog.getTempViewNames())) {
        Option<TemporaryViewRelation> view = catalog.getRawTempView(name);
        if (view.isDefined() && known.get(name) != view.get()) {
          String kept = replaced(name);
          SuiteReport.add(Map.of("view", name, "kept", kept == null ? "" : kept));
          known.put(name, catalog.getRawTempView(name).get());
        }
      }
    } finally {
      isBusy = false;
    }
  }

  /** Why a view stays what it is; null if it has become one over a file. */
  private String replaced(String name) {
    String quoted = "`" + name.replace("`", "``") + "`";
    // Scala declares none of its checked exceptions.
    try {
      Dataset<Row> rows = session.table(quoted);
      Optional<String> reason = reasonToKeep(rows.queryExecution().analyzed());
      if (reason.isPresent()) {
        return reason.get();
      }
      Path folder = Path.of(System.getProperty(FOLDER), UUID.randomUUID().toString());
      rows.coalesce(1)
          .write()
          .option("parquet.block.row.count.limit", "2")
          .parquet(folder.toString());
      if (marks) {
        SuiteFolders.mark(folder, rows.schema());
      }
      Dataset<Row> files =
          readsByConnector
              ? session.read().format("lakemark").load(folder.toString())
              : session.read().parquet(folder.toString());
      if (!files.schema().catalogString().equals(rows.schema().catalogString())) {
        return "columns that come back as others";
      }
      files.createOrReplaceTempView(quoted);
      return null;
    } catch (Exception e) {
      return e.getClass().getSimpleName();
    }
  }

  private static Optional<String> reasonToKeep(LogicalPlan plan) {
    if (plan.isStreaming() || !plan.deterministic()) {
      return Optional.of("other rows each time");
    }
    boolean isOfItsOwn =
        plan.subqueriesAll().isEmpty()
            && CollectionConverters.asJava(plan.collectLeaves()).stream()
                .allMatch(leaf -> OWN_ROWS.contains(leaf.getClass().getSimpleName()));
    return isOfItsOwn ? Optional.empty() : Optional.of("a query over tables");
  }
}

package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakemark.spark.jni.Json;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Spark's filters to the JSON tree that {@code rust/jni/src/filter.rs} reads.
 *
 * <p>Only conditions whose meaning is the same in Spark and in an index are translated. These are
 * comparisons of a column, or of a field of a struct, with a literal of its own type, sets of such
 * literals, tests for null, prefixes of strings, and what AND, OR and NOT make of them.
 * Floating-point comparisons stay with Spark, because NaN and -0.0 have an order of Spark's own. So
 * do strings with a collation. Anything else becomes {@code unknown}, for which the native side
 * keeps every row.
 */
final class PredicateTranslator {
  /** More values of a list are not worth their way to the indexes. */
  private static final int MOST_VALUES = 1 << 20;

  /** More whole numbers of a list are sent as bytes. */
  private static final int PACKED_VALUES = 64;

  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

  /** The filter that selects every row. */
  static final String ALL_ROWS = Json.write(node(FilterOp.TRUE));

  private final StructType schema;

  PredicateTranslator(StructType schema) {
    this.schema = schema;
  }

  /** The filters, all of which must hold, as one tree. */
  String conjunction(List<Predicate> predicates) {
    return Json.write(joint(FilterOp.AND, predicates.toArray(new Expression[0])));
  }

  /** Whether values of a type are compared by an index as Spark compares them. */
  static boolean isComparable(DataType type) {
    return type instanceof BooleanType
        || type instanceof ByteType
        || type instanceof ShortType
        || type instanceof IntegerType
        || type instanceof LongType
        || type instanceof DecimalType
        || type.equals(DataTypes.StringType)
        || type instanceof BinaryType
        || type instanceof DateType
        || type instanceof TimestampType
        || type instanceof TimestampNTZType;
  }

  /** Filters that Spark learned while it ran, as one tree; empty if an index knows none of them. */
  Optional<ObjectNode> learned(Predicate[] predicates) {
    List<ObjectNode> known =
        Arrays.stream(predicates)
            .filter(predicate -> predicate.children().length - 1 <= MOST_VALUES)
            .map(this::translate)
            .filter(PredicateTranslator::isUseful)
            .toList();
    return known.isEmpty() ? Optional.empty() : Optional.of(joint(FilterOp.AND, known));
  }

  /** Whether an index could rule out rows by a filter. */
  boolean isUseful(Predicate predicate) {
    return isUseful(translate(predicate));
  }

  private static boolean isUseful(ObjectNode node) {
    return switch (FilterOp.of(node.get("op").asText())) {
      case UNKNOWN -> false;
      case NOT -> isUseful((ObjectNode) node.get("child"));
      // One known part narrows a conjunction; a disjunction with an unknown part selects any row.
      case AND -> anyChild(node);
      case OR -> !anyChildIsUseless(node);
      case TRUE, FALSE, IS_NULL, EQ, LT, LE, GT, GE, STARTS_WITH, IN, IN_LONGS -> true;
    };
  }

  private static boolean anyChild(ObjectNode node) {
    for (var child : node.get("children")) {
      if (isUseful((ObjectNode) child)) {
        return true;
      }
    }
    return false;
  }

  private static boolean anyChildIsUseless(ObjectNode node) {
    for (var child : node.get("children")) {
      if (!isUseful((ObjectNode) child)) {
        return true;
      }
    }
    return false;
  }

  /** The node of one expression. */
  ObjectNode translate(Expression expression) {
    if (!(expression instanceof Predicate predicate)) {
      return booleanColumn(expression).orElseGet(() -> unknown(expression));
    }
    Expression[] children = predicate.children();
    Optional<ObjectNode> node =
        switch (predicate.name()) {
          case "AND" -> Optional.of(joint(FilterOp.AND, children));
          case "OR" -> Optional.of(joint(FilterOp.OR, children));
          case "NOT" -> Optional.of(not(translate(children[0])));
          case "ALWAYS_TRUE" -> Optional.of(node(FilterOp.TRUE));
          case "ALWAYS_FALSE" -> Optional.of(node(FilterOp.FALSE));
          case "IS_NULL" -> isNull(children[0]);
          case "IS_NOT_NULL" -> isNull(children[0]).map(PredicateTranslator::not);
          case "=" -> comparison(FilterOp.EQ, FilterOp.EQ, children);
          case "<>", "!=" ->
              comparison(FilterOp.EQ, FilterOp.EQ, children).map(PredicateTranslator::not);
          case "<" -> comparison(FilterOp.LT, FilterOp.GT, children);
          case "<=" -> comparison(FilterOp.LE, FilterOp.GE, children);
          case ">" -> comparison(FilterOp.GT, FilterOp.LT, children);
          case ">=" -> comparison(FilterOp.GE, FilterOp.LE, children);
          case "<=>" -> nullSafeEqual(children);
          case "IN" -> in(children);
          case "STARTS_WITH" -> startsWith(children);
          case "BOOLEAN_EXPRESSION" -> booleanColumn(children[0]);
          default -> Optional.empty();
        };
    return node.orElseGet(() -> unknown(expression));
  }

  /** The first rows of an order, as a request to the indexes; empty if they cannot know. */
  Optional<ObjectNode> first(SortOrder[] orders, int rows) {
    if (orders.length == 0) {
      return Optional.empty();
    }
    // Rows that are equal in the first column are all read, so that the others need not be named.
    SortOrder order = orders[0];
    return column(order.expression())
        .filter(column -> isComparable(typeOf(column)))
        .map(
            column ->
                NODES
                    .objectNode()
                    .put("column", column)
                    .put("descending", order.direction() == SortDirection.DESCENDING)
                    .put("nullsFirst", order.nullOrdering() == NullOrdering.NULLS_FIRST)
                    .put("rows", rows));
  }

  private ObjectNode joint(FilterOp op, Expression[] children) {
    return joint(op, Arrays.stream(children).map(this::translate).toList());
  }

  private static ObjectNode joint(FilterOp op, List<ObjectNode> children) {
    ObjectNode node = node(op);
    node.putArray("children").addAll(children);
    return node;
  }

  private Optional<ObjectNode> isNull(Expression operand) {
    return column(operand).map(column -> node(FilterOp.IS_NULL).put("column", column));
  }

  /**
   * A comparison of a column with a literal, in either order; {@code flipped} is the operator when
   * the column is right.
   */
  private Optional<ObjectNode> comparison(FilterOp op, FilterOp flipped, Expression[] operands) {
    Optional<ObjectNode> straight = leaf(op, operands[0], operands[1]);
    return straight.isPresent() ? straight : leaf(flipped, operands[1], operands[0]);
  }

  private Optional<ObjectNode> leaf(FilterOp op, Expression operand, Expression value) {
    return column(operand)
        .flatMap(
            column ->
                value(column, value)
                    .map(
                        literal -> {
                          ObjectNode node = node(op).put("column", column);
                          node.set("value", literal);
                          return node;
                        }));
  }

  /** {@code column <=> literal}: never NULL, so it is "not null and equal", or "is null". */
  private Optional<ObjectNode> nullSafeEqual(Expression[] operands) {
    boolean columnFirst = operands[0] instanceof NamedReference;
    Expression operand = operands[columnFirst ? 0 : 1];
    Expression value = operands[columnFirst ? 1 : 0];
    if (value instanceof Literal<?> literal && literal.value() == null) {
      return isNull(operand);
    }
    return leaf(FilterOp.EQ, operand, value)
        .map(
            equal -> {
              ObjectNode both = node(FilterOp.AND);
              both.putArray("children").add(not(isNull(operand).orElseThrow())).add(equal);
              return both;
            });
  }

  private Optional<ObjectNode> in(Expression[] operands) {
    return column(operands[0])
        .flatMap(
            column -> {
              if (operands.length > PACKED_VALUES && isWholeNumber(typeOf(column))) {
                return inLongs(column, operands);
              }
              ObjectNode node = node(FilterOp.IN).put("column", column);
              ArrayNode values = node.putArray("values");
              for (Expression operand : Arrays.asList(operands).subList(1, operands.length)) {
                Optional<ObjectNode> value = value(column, operand);
                if (value.isEmpty()) {
                  return Optional.empty();
                }
                values.add(value.get());
              }
              return Optional.of(node);
            });
  }

  /**
   * A node for each of the many thousands of keys of a join would take longer than their search.
   */
  private Optional<ObjectNode> inLongs(String column, Expression[] operands) {
    DataType type = typeOf(column);
    ByteBuffer longs =
        ByteBuffer.allocate(Long.BYTES * (operands.length - 1)).order(ByteOrder.LITTLE_ENDIAN);
    boolean hasNull = false;
    for (int at = 1; at < operands.length; at++) {
      if (!(operands[at] instanceof Literal<?> literal) || !literal.dataType().equals(type)) {
        return Optional.empty();
      }
      if (literal.value() == null) {
        hasNull = true;
      } else {
        longs.putLong(((Number) literal.value()).longValue());
      }
    }
    byte[] bytes = Arrays.copyOf(longs.array(), longs.position());
    return Optional.of(
        node(FilterOp.IN_LONGS)
            .put("column", column)
            .put("longs", Base64.getEncoder().encodeToString(bytes))
            .put("null", hasNull));
  }

  private static boolean isWholeNumber(DataType type) {
    return type instanceof ByteType
        || type instanceof ShortType
        || type instanceof IntegerType
        || type instanceof LongType;
  }

  private Optional<ObjectNode> startsWith(Expression[] operands) {
    return column(operands[0])
        .filter(column -> typeOf(column).equals(DataTypes.StringType))
        .flatMap(column -> leaf(FilterOp.STARTS_WITH, operands[0], operands[1]));
  }

  private Optional<ObjectNode> booleanColumn(Expression operand) {
    return column(operand)
        .filter(column -> typeOf(column) instanceof BooleanType)
        .map(
            column -> {
              ObjectNode node = node(FilterOp.EQ).put("column", column);
              node.putObject("value").put("boolean", true);
              return node;
            });
  }

  private Optional<String> column(Expression expression) {
    return FieldNames.of(expression, schema);
  }

  /** The type of what {@link #column} gave. */
  private DataType typeOf(String column) {
    return FieldNames.typeOf(column, schema).orElseThrow();
  }

  /**
   * A literal of just the column's type; Spark casts the column where types differ, and then there
   * is none.
   */
  private Optional<ObjectNode> value(String column, Expression expression) {
    DataType type = typeOf(column);
    if (!(expression instanceof Literal<?> literal) || !literal.dataType().equals(type)) {
      return Optional.empty();
    }
    Object value = literal.value();
    ObjectNode node = NODES.objectNode();
    if (value == null) {
      return Optional.of(node.put("null", true));
    } else if (type instanceof BooleanType) {
      return Optional.of(node.put("boolean", (Boolean) value));
    } else if (isWholeNumber(type)) {
      return Optional.of(node.put("long", ((Number) value).longValue()));
    } else if (type instanceof DecimalType decimal) {
      return decimal((Decimal) value, decimal);
    } else if (type.equals(DataTypes.StringType)) {
      return Optional.of(node.put("string", value.toString()));
    } else if (type instanceof BinaryType) {
      return Optional.of(node.put("binary", Base64.getEncoder().encodeToString((byte[]) value)));
    } else if (type instanceof DateType) {
      return Optional.of(node.put("date", (Integer) value));
    } else if (type instanceof TimestampType) {
      return Optional.of(node.put("timestamp", (Long) value));
    } else if (type instanceof TimestampNTZType) {
      return Optional.of(node.put("timestamp_ntz", (Long) value));
    }
    return Optional.empty();
  }

  private static Optional<ObjectNode> decimal(Decimal value, DecimalType type) {
    BigDecimal exact = value.toJavaBigDecimal();
    if (exact.stripTrailingZeros().scale() > type.scale()) {
      return Optional.empty();
    }
    ObjectNode node = NODES.objectNode();
    node.putObject("decimal")
        .put("unscaled", exact.setScale(type.scale()).unscaledValue().toString())
        .put("scale", type.scale());
    return Optional.of(node);
  }

  private static ObjectNode node(FilterOp op) {
    return NODES.objectNode().put("op", op.jsonName());
  }

  private static ObjectNode not(ObjectNode child) {
    ObjectNode node = node(FilterOp.NOT);
    node.set("child", child);
    return node;
  }

  private static ObjectNode unknown(Expression expression) {
    return node(FilterOp.UNKNOWN)
        .put("text", hasName(expression) ? expression.toString() : "a condition");
  }

  /**
   * Whether Spark can write an expression as text. It fails at a NULL among binaries, as in {@code
   * blob IN (X'00', NULL)}, and at a prefix of a text with a collation.
   */
  static boolean hasName(Expression expression) {
    if (hasNullBinary(expression)) {
      return false;
    }
    try {
      return expression.toString() != null;
    } catch (RuntimeException e) {
      return false;
    }
  }

  private static boolean hasNullBinary(Expression expression) {
    boolean isNullBinary =
        expression instanceof Literal<?> literal
            && literal.dataType() instanceof BinaryType
            && literal.value() == null;
    return isNullBinary
        || Arrays.stream(expression.children()).anyMatch(PredicateTranslator::hasNullBinary);
  }
}

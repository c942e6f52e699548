package io.lakemark.spark.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.jni.Json;
import java.math.BigDecimal;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class PredicateTranslatorTest {
  private static final StructType PLACE = new StructType().add("city", DataTypes.StringType);

  private static final StructType SCHEMA =
      new StructType()
          .add("k", DataTypes.IntegerType)
          .add("n", DataTypes.LongType)
          .add("f", DataTypes.DoubleType)
          .add("s", DataTypes.StringType)
          .add("b", DataTypes.BooleanType)
          .add("d", DataTypes.DateType)
          .add("t", DataTypes.TimestampType)
          .add("u", DataTypes.TimestampNTZType)
          .add("x", DataTypes.BinaryType)
          .add("m", DataTypes.createDecimalType(10, 2))
          .add("a.k", DataTypes.IntegerType)
          .add("a", new StructType().add("k", DataTypes.IntegerType).add("b", PLACE))
          .add("l", DataTypes.createArrayType(PLACE));

  private final PredicateTranslator translator = new PredicateTranslator(SCHEMA);

  private static Expression column(String name) {
    return Expressions.column(name);
  }

  private static Expression literal(Object value) {
    return Expressions.literal(value);
  }

  private static Expression internal(Object value, DataType type) {
    return new LiteralValue<>(value, type);
  }

  private static Predicate predicate(String name, Expression... children) {
    return new Predicate(name, children);
  }

  private static Predicate equalK(int value) {
    return predicate("=", column("k"), literal(value));
  }

  private static JsonNode json(String text) {
    return Json.read(text.replace('\'', '"'));
  }

  private static Arguments known(Predicate predicate, String json) {
    return Arguments.of(predicate, json);
  }

  static Stream<Arguments> knownShapes() {
    Decimal cents = Decimal.apply(new BigDecimal("-1.25"), 10, 2);
    return Stream.of(
        known(equalK(5), "{'op':'eq','column':'k','value':{'long':5}}"),
        known(
            predicate("<>", column("k"), literal(5)),
            "{'op':'not','child':{'op':'eq','column':'k','value':{'long':5}}}"),
        known(
            predicate("<", column("n"), literal(5L)),
            "{'op':'lt','column':'n','value':{'long':5}}"),
        known(
            predicate("<", literal(5), column("k")), "{'op':'gt','column':'k','value':{'long':5}}"),
        known(
            predicate(">=", literal(5), column("k")),
            "{'op':'le','column':'k','value':{'long':5}}"),
        known(
            predicate("<=", column("s"), literal("ä\"b")),
            "{'op':'le','column':'s','value':{'string':'ä\\\"b'}}"),
        known(
            predicate("STARTS_WITH", column("s"), literal("ab")),
            "{'op':'starts_with','column':'s','value':{'string':'ab'}}"),
        known(predicate("IS_NULL", column("f")), "{'op':'is_null','column':'f'}"),
        known(
            predicate("IS_NOT_NULL", column("f")),
            "{'op':'not','child':{'op':'is_null','column':'f'}}"),
        known(
            predicate("IN", column("k"), literal(1), internal(null, DataTypes.IntegerType)),
            "{'op':'in','column':'k','values':[{'long':1},{'null':true}]}"),
        known(
            predicate("<=>", column("k"), literal(1)),
            "{'op':'and','children':[{'op':'not','child':{'op':'is_null','column':'k'}},"
                + "{'op':'eq','column':'k','value':{'long':1}}]}"),
        known(
            predicate("<=>", column("k"), internal(null, DataTypes.IntegerType)),
            "{'op':'is_null','column':'k'}"),
        known(
            predicate("BOOLEAN_EXPRESSION", column("b")),
            "{'op':'eq','column':'b','value':{'boolean':true}}"),
        known(
            predicate(">", column("d"), internal(-1, DataTypes.DateType)),
            "{'op':'gt','column':'d','value':{'date':-1}}"),
        known(
            predicate(">", column("t"), internal(-7L, DataTypes.TimestampType)),
            "{'op':'gt','column':'t','value':{'timestamp':-7}}"),
        known(
            predicate(">", column("u"), internal(7L, DataTypes.TimestampNTZType)),
            "{'op':'gt','column':'u','value':{'timestamp_ntz':7}}"),
        known(
            predicate("<", column("a.k"), literal(5)),
            "{'op':'lt','column':'a\\u0000k','value':{'long':5}}"),
        known(
            predicate("<", column("`a.k`"), literal(5)),
            "{'op':'lt','column':'a.k','value':{'long':5}}"),
        known(
            predicate("STARTS_WITH", column("a.b.city"), literal("ab")),
            "{'op':'starts_with','column':'a\\u0000b\\u0000city','value':{'string':'ab'}}"),
        known(predicate("IS_NULL", column("a.b")), "{'op':'is_null','column':'a\\u0000b'}"),
        known(
            predicate("=", column("x"), internal(new byte[] {1, -1}, DataTypes.BinaryType)),
            "{'op':'eq','column':'x','value':{'binary':'Af8='}}"),
        known(
            predicate("=", column("m"), internal(cents, DataTypes.createDecimalType(10, 2))),
            "{'op':'eq','column':'m','value':{'decimal':{'unscaled':'-125','scale':2}}}"),
        known(predicate("ALWAYS_TRUE"), "{'op':'true'}"),
        known(predicate("ALWAYS_FALSE"), "{'op':'false'}"),
        known(
            predicate("NOT", predicate("OR", equalK(1), equalK(2))),
            "{'op':'not','child':{'op':'or','children':["
                + "{'op':'eq','column':'k','value':{'long':1}},"
                + "{'op':'eq','column':'k','value':{'long':2}}]}}"));
  }

  @ParameterizedTest
  @MethodSource("knownShapes")
  void aConditionOfTheSameMeaningIsTranslated(Predicate predicate, String json) {
    assertEquals(json(json), Json.read(translator.translate(predicate).toString()));
    assertTrue(translator.isUseful(predicate));
  }

  @SuppressWarnings("deprecation") // Spark's own translation makes them so.
  static Stream<Predicate> foreignShapes() {
    Expression castK = new Cast(column("k"), DataTypes.LongType);
    return Stream.of(
        predicate("=", column("f"), literal(1.0)),
        predicate("IN", column("f"), literal(1.0)),
        predicate("=", castK, literal(5L)),
        predicate("=", column("k"), literal(5L)),
        predicate("=", column("k"), column("k")),
        predicate("=", column("absent"), literal(5)),
        predicate("=", Expressions.column("s.inner"), literal(5)),
        predicate("STARTS_WITH", column("x"), internal(new byte[] {1}, DataTypes.BinaryType)),
        predicate("ENDS_WITH", column("s"), literal("ab")),
        predicate("CONTAINS", column("s"), literal("ab")),
        predicate("IN", column("k"), literal(1), column("k")),
        predicate("NOT", predicate("CONTAINS", column("s"), literal("ab"))));
  }

  @ParameterizedTest
  @MethodSource("foreignShapes")
  void aConditionThatOnlySparkUnderstandsStaysWithSpark(Predicate predicate) {
    assertFalse(translator.isUseful(predicate));
    assertTrue(translator.translate(predicate).toString().contains("\"op\":\"unknown\""));
  }

  @Test
  void aConditionThatSparkCannotNameHasANameOfOurs() {
    Predicate list =
        predicate("IN", column("s"), literal("a"), internal(null, DataTypes.BinaryType));
    Predicate condition = predicate("IS_NULL", predicate("NOT", list));
    assertFalse(PredicateTranslator.hasName(condition));
    assertEquals(
        json("{'op':'unknown','text':'a condition'}"),
        Json.read(translator.translate(condition).toString()));
    assertTrue(PredicateTranslator.hasName(equalK(5)));
  }

  @Test
  void aDisjunctionWithAForeignPartIsUselessAndAConjunctionIsNot() {
    Predicate foreign = predicate("=", column("f"), literal(1.0));
    assertFalse(translator.isUseful(predicate("OR", equalK(1), foreign)));
    assertTrue(translator.isUseful(predicate("AND", equalK(1), foreign)));
    assertTrue(
        translator.isUseful(predicate("OR", equalK(1), predicate("AND", equalK(2), foreign))));
  }

  @Test
  void allFiltersMustHold() {
    assertEquals(
        json(
            "{'op':'and','children':[{'op':'eq','column':'k','value':{'long':1}},"
                + "{'op':'eq','column':'k','value':{'long':2}}]}"),
        Json.read(translator.conjunction(List.of(equalK(1), equalK(2)))));
  }

  @Test
  void whatSparkLearnsIsTranslatedIfAnIndexKnowsIt() {
    Predicate keys =
        predicate("IN", column("k"), literal(3), internal(null, DataTypes.IntegerType));
    Predicate floats = predicate("IN", column("f"), literal(3.0));
    Predicate none = predicate("IN", column("n"));
    assertEquals(
        "{\"op\":\"and\",\"children\":[{\"op\":\"in\",\"column\":\"k\",\"values\":"
            + "[{\"long\":3},{\"null\":true}]},{\"op\":\"in\",\"column\":\"n\",\"values\":[]}]}",
        Json.write(translator.learned(new Predicate[] {keys, floats, none}).orElseThrow()));
    assertTrue(translator.learned(new Predicate[] {floats}).isEmpty());
    assertTrue(translator.learned(new Predicate[0]).isEmpty());
  }

  @Test
  void manyWholeNumbersAreSentAsBytes() {
    Expression[] children = new Expression[101];
    java.util.Arrays.fill(children, literal(-2));
    children[0] = column("k");
    children[100] = internal(null, DataTypes.IntegerType);
    var sent = translator.learned(new Predicate[] {predicate("IN", children)}).orElseThrow();
    var node = sent.get("children").get(0);
    assertEquals("in_longs", node.get("op").asText());
    assertEquals("k", node.get("column").asText());
    assertTrue(node.get("null").asBoolean());
    byte[] longs = java.util.Base64.getDecoder().decode(node.get("longs").asText());
    assertEquals(99 * Long.BYTES, longs.length);
    for (int at = 0; at < longs.length; at++) {
      assertEquals(at % Long.BYTES == 0 ? -2 : -1, longs[at]);
    }
    children[50] = literal(1.0);
    assertTrue(translator.learned(new Predicate[] {predicate("IN", children)}).isEmpty());
  }

  @Test
  void tooManyValuesAreNotAsked() {
    Expression[] children = new Expression[(1 << 20) + 2];
    java.util.Arrays.fill(children, literal(1));
    children[0] = column("k");
    assertTrue(translator.learned(new Predicate[] {predicate("IN", children)}).isEmpty());
  }

  @Test
  void floatsAndCollationsAreNotComparedByAnIndex() {
    assertTrue(PredicateTranslator.isComparable(DataTypes.createDecimalType(38, 3)));
    assertTrue(PredicateTranslator.isComparable(DataTypes.StringType));
    assertFalse(PredicateTranslator.isComparable(DataTypes.DoubleType));
    assertFalse(PredicateTranslator.isComparable(DataTypes.FloatType));
    assertFalse(
        PredicateTranslator.isComparable(
            org.apache.spark.sql.types.StringType$.MODULE$.apply("UNICODE_CI")));
    assertFalse(PredicateTranslator.isComparable(SCHEMA));
  }

  @Test
  void theFirstColumnOfAnOrderIsTold() {
    SortOrder byK =
        Expressions.sort(column("k"), SortDirection.DESCENDING, NullOrdering.NULLS_FIRST);
    SortOrder byF = Expressions.sort(column("f"), SortDirection.ASCENDING);
    assertEquals(
        "{\"column\":\"k\",\"descending\":true,\"nullsFirst\":true,\"rows\":7}",
        Json.write(translator.first(new SortOrder[] {byK, byF}, 7).orElseThrow()));
    assertTrue(translator.first(new SortOrder[] {byF, byK}, 7).isEmpty());
    assertTrue(translator.first(new SortOrder[0], 7).isEmpty());
  }
}

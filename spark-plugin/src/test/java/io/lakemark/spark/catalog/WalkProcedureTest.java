package io.lakemark.spark.catalog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;

class WalkProcedureTest {
  private static final Metadata BY_NAME =
      new MetadataBuilder().putBoolean(ProcedureParameter.BY_NAME_METADATA_KEY, true).build();

  /** No table is opened: whoever asks for one got past the arguments. */
  private static LakemarkOptions opened(String table) {
    throw new IllegalStateException("opened " + table);
  }

  private static StructField named(String name, DataType type) {
    return new StructField(name, type, true, BY_NAME);
  }

  private static StructField placed(int place, DataType type) {
    return new StructField("param" + place, type, true, Metadata.empty());
  }

  private static BoundProcedure bound(String walk, StructField... arguments) {
    return WalkProcedure.of(WalkProcedureTest::opened, walk).bind(new StructType(arguments));
  }

  private static List<DataType> types(BoundProcedure procedure) {
    return Arrays.stream(procedure.parameters()).map(ProcedureParameter::dataType).toList();
  }

  private static List<String> names(BoundProcedure procedure) {
    return Arrays.stream(procedure.parameters()).map(ProcedureParameter::name).toList();
  }

  /** A call of reach with a start of this type, of an array of it, or of NULL. */
  private static String refused(DataType type, Object start) {
    BoundProcedure reach = bound("reach", placed(0, DataTypes.StringType), placed(1, type));
    Object[] row = new Object[reach.parameters().length];
    row[0] = UTF8String.fromString("t");
    row[1] = start;
    return refused(reach, new GenericInternalRow(row));
  }

  private static String refused(BoundProcedure procedure, InternalRow row) {
    return assertThrows(LakemarkException.InvalidInput.class, () -> procedure.call(row))
        .getMessage();
  }

  @Test
  void everyWalkIsAProcedure() {
    assertEquals(List.of("links", "path", "reach"), WalkProcedure.names());
    assertTrue(Procedures.names().containsAll(WalkProcedure.names()));
  }

  @Test
  void nodesAndPredicatesHaveTheTypesOfTheCall() {
    DataType texts = DataTypes.createArrayType(DataTypes.StringType);
    BoundProcedure byName =
        bound(
            "path",
            named("VIA", texts),
            named("to", DataTypes.IntegerType),
            named("from", DataTypes.LongType),
            named("table", DataTypes.StringType));
    assertEquals(
        List.of("table", "from", "to", "via", "direction", "max_depth", "memory", "columns"),
        names(byName));
    assertEquals(
        List.of(DataTypes.StringType, DataTypes.LongType, DataTypes.IntegerType, texts),
        types(byName).subList(0, 4));
    BoundProcedure byPlace =
        bound(
            "reach",
            placed(0, DataTypes.StringType),
            placed(1, DataTypes.BinaryType),
            placed(2, DataTypes.NullType),
            named("max_depth", DataTypes.IntegerType));
    assertEquals(
        List.of(
            DataTypes.StringType,
            DataTypes.BinaryType,
            DataTypes.StringType,
            DataTypes.StringType,
            DataTypes.LongType,
            DataTypes.LongType),
        types(byPlace).subList(0, 6));
    assertEquals(List.of("min_depth", "max_depth", "limit"), names(byPlace).subList(4, 7));
  }

  @Test
  void valuesThatAreNoNodesAreRefusedBeforeATableIsOpened() {
    DataType numbers = DataTypes.createArrayType(DataTypes.IntegerType);
    assertTrue(refused(DataTypes.StringType, null).contains("reach needs a value for start"));
    assertTrue(refused(DataTypes.DoubleType, 1.5).contains("start is of the type DOUBLE"));
    assertTrue(
        refused(numbers, new GenericArrayData(new Object[] {1, null})).contains("a NULL in it"));
    BoundProcedure links = bound("links", placed(0, DataTypes.StringType));
    Object[] row = new Object[links.parameters().length];
    row[0] = UTF8String.fromString("t");
    row[1] = UTF8String.fromString("cat");
    row[names(links).indexOf("limit")] = -1L;
    assertTrue(
        refused(links, new GenericInternalRow(row)).contains("limit is -1, it must be 0 or more"));
    row[names(links).indexOf("limit")] = 0L;
    IllegalStateException opened =
        assertThrows(IllegalStateException.class, () -> links.call(new GenericInternalRow(row)));
    assertEquals("opened t", opened.getMessage());
  }
}

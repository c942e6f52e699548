package io.lakemark.spark.write;

import java.util.Arrays;
import java.util.List;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/**
 * Spark's columns as Arrow has them, for rows that go to the native side.
 *
 * <p>Spark's own translation of a schema takes other arguments in each release, so that only that
 * of a plain type, which does not, is used.
 */
public final class StagedSchema {
  /** Timestamps are counted from 1970 in UTC, in whatever zone the session shows them. */
  private static final String ZONE = "UTC";

  private static final ArrowType MAP = new ArrowType.Map(false);

  private StagedSchema() {}

  /** The schema of batches that {@code StagedRows} fills with rows of these columns. */
  public static Schema of(StructType columns) {
    return new Schema(fields(columns));
  }

  private static List<Field> fields(StructType columns) {
    return Arrays.stream(columns.fields()).map(StagedSchema::field).toList();
  }

  private static Field field(StructField field) {
    return field(field.name(), field.dataType(), field.nullable());
  }

  private static Field field(String name, DataType type, boolean isNullable) {
    if (type instanceof StructType struct) {
      return field(name, isNullable, ArrowType.Struct.INSTANCE, fields(struct));
    }
    if (type instanceof ArrayType array) {
      Field element = field("element", array.elementType(), array.containsNull());
      return field(name, isNullable, ArrowType.List.INSTANCE, List.of(element));
    }
    if (type instanceof MapType map) {
      StructType entry =
          new StructType()
              .add(MapVector.KEY_NAME, map.keyType(), false)
              .add(MapVector.VALUE_NAME, map.valueType(), map.valueContainsNull());
      Field entries = field(MapVector.DATA_VECTOR_NAME, entry, false);
      return field(name, isNullable, MAP, List.of(entries));
    }
    return field(name, isNullable, ArrowUtils.toArrowType(type, ZONE, false), List.of());
  }

  private static Field field(String name, boolean isNullable, ArrowType type, List<Field> inside) {
    return new Field(name, new FieldType(isNullable, type, null), inside);
  }
}

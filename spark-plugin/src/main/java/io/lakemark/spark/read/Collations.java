package io.lakemark.spark.read;

import io.lakemark.spark.LakemarkException;
import java.util.Arrays;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.CharType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VarcharType;

/**
 * The collations of a table's texts.
 *
 * <p>Parquet has none; Spark writes a schema of its own into footers, and its reader takes the
 * types of columns from there. So do we, where that schema says nothing else than the files do.
 * Texts with a collation are of another type than {@code STRING}. So no filter on them, no
 * aggregate and no order is handed to the indexes.
 */
final class Collations {
  private Collations() {}

  /**
   * The columns of a table with the collations that Spark's own schema has for them.
   *
   * @param columns the columns as the files have them
   * @param said Spark's schema as JSON
   */
  static StructType of(StructType columns, String said) {
    DataType schema;
    try {
      schema = DataType.fromJson(said);
    } catch (Exception e) {
      // Scala throws what it does not declare.
      throw new LakemarkException.Unsupported(
          "the collations of the table's columns are none of this version of Spark's; read it with"
              + " the version that wrote it: "
              + e.getMessage());
    }
    return (StructType) collated(columns, schema);
  }

  /** The columns as their values are stored, which is the same for every collation. */
  static StructType without(StructType columns) {
    return (StructType) plain(columns);
  }

  private static DataType plain(DataType type) {
    if (type instanceof StructType struct) {
      return new StructType(
          Arrays.stream(struct.fields())
              .map(field -> withType(field, plain(field.dataType())))
              .toArray(StructField[]::new));
    }
    if (type instanceof ArrayType array) {
      return new ArrayType(plain(array.elementType()), array.containsNull());
    }
    if (type instanceof MapType map) {
      return new MapType(plain(map.keyType()), plain(map.valueType()), map.valueContainsNull());
    }
    return isText(type) ? DataTypes.StringType : type;
  }

  private static StructField withType(StructField field, DataType type) {
    return new StructField(field.name(), type, field.nullable(), field.metadata());
  }

  private static boolean isText(DataType type) {
    return type instanceof StringType
        && !(type instanceof CharType)
        && !(type instanceof VarcharType);
  }

  private static DataType collated(DataType type, DataType said) {
    if (type instanceof StructType struct && said instanceof StructType saidStruct) {
      return new StructType(
          Arrays.stream(struct.fields())
              .map(field -> collated(field, saidStruct))
              .toArray(StructField[]::new));
    }
    if (type instanceof ArrayType array && said instanceof ArrayType saidArray) {
      return new ArrayType(
          collated(array.elementType(), saidArray.elementType()), array.containsNull());
    }
    if (type instanceof MapType map && said instanceof MapType saidMap) {
      return new MapType(
          collated(map.keyType(), saidMap.keyType()),
          collated(map.valueType(), saidMap.valueType()),
          map.valueContainsNull());
    }
    return isText(type) && isText(said) ? said : type;
  }

  private static StructField collated(StructField field, StructType said) {
    return Arrays.stream(said.fields())
        .filter(other -> other.name().equals(field.name()))
        .findFirst()
        .map(other -> withType(field, collated(field.dataType(), other.dataType())))
        .orElse(field);
  }
}

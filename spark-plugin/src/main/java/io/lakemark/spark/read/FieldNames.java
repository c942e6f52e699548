package io.lakemark.spark.read;

import java.util.Arrays;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What the native side calls columns and fields of structs: the names on the way to them, with a
 * character between two of them that no name has ({@code rust/format/src/column.rs}).
 */
final class FieldNames {
  private static final String SEPARATOR = "\0";

  private FieldNames() {}

  /** The column or field that an expression is; empty if it is none, or none of the schema. */
  static Optional<String> of(Expression expression, StructType schema) {
    if (!(expression instanceof NamedReference reference)) {
      return Optional.empty();
    }
    String[] names = reference.fieldNames();
    String joined = String.join(SEPARATOR, names);
    boolean isKnown =
        names.length > 0
            && Arrays.stream(names).noneMatch(name -> name.contains(SEPARATOR))
            && typeOf(joined, schema).isPresent();
    return isKnown ? Optional.of(joined) : Optional.empty();
  }

  /** The type of a column or field; empty if the schema has neither. */
  static Optional<DataType> typeOf(String column, StructType schema) {
    DataType found = schema;
    for (String name : column.split(SEPARATOR, -1)) {
      Optional<StructField> field =
          found instanceof StructType struct
              ? Arrays.stream(struct.fields()).filter(each -> each.name().equals(name)).findFirst()
              : Optional.empty();
      if (field.isEmpty()) {
        return Optional.empty();
      }
      found = field.get().dataType();
    }
    return Optional.of(found);
  }
}

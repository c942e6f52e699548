package io.lakemark.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Maintenance;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * A verb that SQL calls. The driver runs it, as a request of {@link Maintenance}; a build is a
 * {@link BuildJob}.
 */
final class LakemarkProcedure implements UnboundProcedure, BoundProcedure {
  private static final String OLDER_THAN = "older_than";
  private static final String MAX_FAILURES = "max_failures";

  /** What arguments are if they are not given. NULL leaves the choice to the native side. */
  private static final Map<String, String> DEFAULTS =
      Map.of("fraction", "1.0", OLDER_THAN, "'7d'", "dry_run", "false", "originals", "false");

  /**
   * What a procedure is.
   *
   * @param name its name, which is the verb
   * @param description what it does
   * @param arguments what it takes after the table
   * @param columns what it answers
   * @param rows the rows in a report
   */
  record Definition(
      String name,
      String description,
      StructType arguments,
      StructType columns,
      Function<JsonNode, List<JsonNode>> rows) {

    /** A definition with arguments and columns as SQL writes them. */
    static Definition of(
        String name,
        String description,
        String arguments,
        String columns,
        Function<JsonNode, List<JsonNode>> rows) {
      return new Definition(
          name,
          description,
          arguments.isEmpty() ? new StructType() : StructType.fromDDL(arguments),
          StructType.fromDDL(columns),
          rows);
    }
  }

  private final String catalog;
  private final Function<String, LakemarkOptions> tables;
  private final Definition definition;

  /**
   * A procedure of a catalog.
   *
   * @param catalog the catalog's name
   * @param tables the table that a name or a path in SQL means there
   */
  LakemarkProcedure(
      String catalog, Function<String, LakemarkOptions> tables, Definition definition) {
    this.catalog = catalog;
    this.tables = tables;
    this.definition = definition;
  }

  @Override
  public String name() {
    return definition.name();
  }

  @Override
  public String description() {
    return definition.description();
  }

  @Override
  public BoundProcedure bind(StructType inputType) {
    return this;
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public ProcedureParameter[] parameters() {
    List<ProcedureParameter> parameters = new ArrayList<>();
    parameters.add(
        ProcedureParameter.in("table", DataTypes.StringType)
            .comment("a table of this catalog, or a path")
            .build());
    for (StructField argument : definition.arguments().fields()) {
      parameters.add(
          ProcedureParameter.in(argument.name(), argument.dataType())
              .defaultValue(DEFAULTS.getOrDefault(argument.name(), "NULL"))
              .build());
    }
    return parameters.toArray(new ProcedureParameter[0]);
  }

  @Override
  public Iterator<Scan> call(InternalRow input) {
    if (input.isNullAt(0)) {
      throw new LakemarkException.InvalidInput(
          name() + " needs a table: CALL " + catalog + ".system." + name() + "(table => 't')");
    }
    LakemarkOptions table = tables.apply(input.getUTF8String(0).toString());
    Map<String, Object> arguments = new HashMap<>();
    StructField[] fields = definition.arguments().fields();
    for (int at = 0; at < fields.length; at++) {
      if (!input.isNullAt(at + 1)) {
        put(arguments, fields[at].name(), value(input, at + 1, fields[at].dataType()));
      }
    }
    JsonNode report =
        name().equals(Procedures.BUILD)
            ? BuildJob.run(table, arguments)
            : Maintenance.run(table, name(), arguments);
    String shown = "lakemark " + name() + " " + table.path();
    Scan scan = JsonRows.scan(shown, definition.columns(), definition.rows().apply(report));
    return Collections.singleton(scan).iterator();
  }

  /** An argument as a request has it; it is not NULL. */
  static Object value(InternalRow input, int at, DataType type) {
    if (type instanceof StringType) {
      return input.getUTF8String(at).toString();
    }
    if (type instanceof LongType) {
      return input.getLong(at);
    }
    if (type instanceof ArrayType) {
      return texts(input.getArray(at));
    }
    if (type instanceof MapType) {
      return texts(input.getMap(at));
    }
    return type instanceof BooleanType ? (Object) input.getBoolean(at) : input.getDouble(at);
  }

  private static List<String> texts(ArrayData array) {
    List<String> texts = new ArrayList<>();
    for (int at = 0; at < array.numElements(); at++) {
      if (array.isNullAt(at)) {
        throw new LakemarkException.InvalidInput("an argument has a NULL in it; leave it out");
      }
      texts.add(array.getUTF8String(at).toString());
    }
    return texts;
  }

  private static Map<String, String> texts(MapData map) {
    List<String> keys = texts(map.keyArray());
    List<String> values = texts(map.valueArray());
    Map<String, String> texts = new HashMap<>();
    for (int at = 0; at < keys.size(); at++) {
      texts.put(keys.get(at), values.get(at));
    }
    return texts;
  }

  private static void put(Map<String, Object> arguments, String name, Object value) {
    long least = name.equals(MAX_FAILURES) ? 0 : 1;
    if (value instanceof Long number && number < least) {
      throw new LakemarkException.InvalidInput(
          name + " is " + number + ", it must be " + least + " or more");
    }
    if (name.equals(OLDER_THAN)) {
      arguments.put("older_than_seconds", seconds(value.toString()));
    } else {
      arguments.put(name, value);
    }
  }

  /** An age as the shell takes it. */
  static long seconds(String age) {
    String text = age.strip();
    try {
      long number = Long.parseLong(text.substring(0, Math.max(0, text.length() - 1)));
      long hours =
          switch (text.charAt(text.length() - 1)) {
            case 'h' -> 1;
            case 'd' -> 24;
            case 'w' -> 7 * 24;
            default -> 0;
          };
      if (number >= 0 && hours > 0) {
        return Math.multiplyExact(number, hours * 3600);
      }
    } catch (ArithmeticException | NumberFormatException e) {
      // Said below.
    }
    throw new LakemarkException.InvalidInput(
        OLDER_THAN + " is " + age + "; write it as a number with h, d or w, e.g. 12h or 30d");
  }
}

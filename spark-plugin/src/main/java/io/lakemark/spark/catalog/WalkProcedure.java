package io.lakemark.spark.catalog;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.jni.Json;
import io.lakemark.spark.jni.NativeLibrary;
import io.lakemark.spark.jni.NativeStream;
import io.lakemark.spark.read.LakemarkLocalRows;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * A walk over the links of a table, which SQL calls. The driver makes it.
 *
 * <p>Nodes and predicates keep the types that a call gives them, alone or in arrays, since the
 * table says what they are. The rows have the types that the table's nodes have in Spark.
 */
final class WalkProcedure implements UnboundProcedure {
  private static final String VIA = "via";
  private static final String MEMORY = "memory";

  /** The walks by their names, which are those of the table functions of our own SQL. */
  private static final Map<String, Walk> ALL = new TreeMap<>();

  static {
    define(
        "reach",
        "Gives the nodes that links lead to, each with the fewest links to it: node, depth.",
        List.of("start"),
        "direction STRING, min_depth BIGINT, max_depth BIGINT, `limit` BIGINT");
    define(
        "links",
        "Gives what a node is linked with: from, predicate, node.",
        List.of("node"),
        "direction STRING, `limit` BIGINT");
    define(
        "path",
        "Gives a shortest way over links from one node to another: step, node, predicate.",
        List.of("from", "to"),
        "direction STRING, max_depth BIGINT");
  }

  /**
   * What a walk is.
   *
   * @param name its name
   * @param description what it gives
   * @param ends the nodes that it needs: where it begins, and for a path where it ends
   * @param others what it takes after the predicates of the links
   */
  private record Walk(String name, String description, List<String> ends, StructType others) {}

  private final Function<String, LakemarkOptions> tables;
  private final Walk walk;

  private WalkProcedure(Function<String, LakemarkOptions> tables, Walk walk) {
    this.tables = tables;
    this.walk = walk;
  }

  private static void define(String name, String description, List<String> ends, String others) {
    StructType columns = StructType.fromDDL(others + ", memory BIGINT, columns ARRAY<STRING>");
    ALL.put(name, new Walk(name, description, ends, columns));
  }

  /** The names of all walks. */
  static List<String> names() {
    return List.copyOf(ALL.keySet());
  }

  /**
   * The procedure of a name in {@link #names}.
   *
   * @param tables the table that a name or a path in SQL means
   */
  static WalkProcedure of(Function<String, LakemarkOptions> tables, String name) {
    return new WalkProcedure(tables, ALL.get(name));
  }

  @Override
  public String name() {
    return walk.name();
  }

  @Override
  public String description() {
    return walk.description();
  }

  /** The parameters, of which those of nodes and predicates have the types of the arguments. */
  @Override
  public BoundProcedure bind(StructType given) {
    List<String> inOrder = new ArrayList<>();
    inOrder.add("table");
    inOrder.addAll(walk.ends());
    inOrder.add(VIA);
    Map<String, DataType> types = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    StructField[] arguments = given.fields();
    for (int at = 0; at < arguments.length; at++) {
      boolean isNamed = arguments[at].metadata().contains(ProcedureParameter.BY_NAME_METADATA_KEY);
      if (isNamed || at < inOrder.size()) {
        types.put(isNamed ? arguments[at].name() : inOrder.get(at), arguments[at].dataType());
      }
    }
    List<ProcedureParameter> parameters = new ArrayList<>();
    parameters.add(
        ProcedureParameter.in("table", DataTypes.StringType)
            .comment("a table of this catalog, or a path")
            .build());
    for (String end : walk.ends()) {
      parameters.add(ProcedureParameter.in(end, typeOf(types, end)).build());
    }
    parameters.add(
        ProcedureParameter.in(VIA, typeOf(types, VIA))
            .defaultValue("NULL")
            .comment("a predicate or an array of them; any without it")
            .build());
    for (StructField other : walk.others().fields()) {
      parameters.add(
          ProcedureParameter.in(other.name(), other.dataType()).defaultValue("NULL").build());
    }
    return new BoundWalk(tables, walk, parameters);
  }

  /** NULL, and what is not given, is nothing in any type. */
  private static DataType typeOf(Map<String, DataType> given, String name) {
    DataType type = given.getOrDefault(name, DataTypes.StringType);
    return type instanceof NullType ? DataTypes.StringType : type;
  }

  /** A walk whose arguments have their types. */
  private static final class BoundWalk implements BoundProcedure {
    private final Function<String, LakemarkOptions> tables;
    private final Walk walk;
    private final List<ProcedureParameter> parameters;

    BoundWalk(
        Function<String, LakemarkOptions> tables, Walk walk, List<ProcedureParameter> parameters) {
      this.tables = tables;
      this.walk = walk;
      this.parameters = List.copyOf(parameters);
    }

    @Override
    public String name() {
      return walk.name();
    }

    @Override
    public String description() {
      return walk.description();
    }

    @Override
    public boolean isDeterministic() {
      return false;
    }

    @Override
    public ProcedureParameter[] parameters() {
      return parameters.toArray(new ProcedureParameter[0]);
    }

    @Override
    public Iterator<Scan> call(InternalRow input) {
      String request = Json.write(request(input));
      LakemarkOptions table = tables.apply(input.getUTF8String(0).toString());
      NativeLibrary.load();
      try (NativeStream rows =
          new NativeStream(
              out ->
                  NativeLibrary.walk(
                      table.path(), table.storageJson(), request, out.memoryAddress()))) {
        Scan scan = LakemarkLocalRows.of(rows).scan("lakemark " + name() + " " + table.path());
        return Collections.singleton(scan).iterator();
      } catch (IOException e) {
        throw NativeStream.translated(e);
      }
    }

    /** What the native side is asked for; nothing is opened yet. */
    private Map<String, Object> request(InternalRow input) {
      Map<String, Object> request = new HashMap<>();
      request.put("walk", walk.name());
      for (int at = 0; at < parameters.size(); at++) {
        String name = parameters.get(at).name();
        DataType type = parameters.get(at).dataType();
        int end = walk.ends().indexOf(name);
        if (input.isNullAt(at)) {
          if (at == 0 || end >= 0) {
            throw new LakemarkException.InvalidInput(
                String.format("%s needs a value for %s, and NULL is none", name(), name));
          }
        } else if (end >= 0) {
          request.put(end == 0 ? "start" : "to", values(name, input.get(at, type), type));
        } else if (name.equals(VIA)) {
          request.put(name, values(name, input.get(at, type), type));
        } else if (at > 0) {
          request.put(name, checked(name, LakemarkProcedure.value(input, at, type)));
        }
      }
      return request;
    }

    private static Object checked(String name, Object value) {
      long least = name.equals(MEMORY) ? 1 : 0;
      if (value instanceof Long number && number < least) {
        throw new LakemarkException.InvalidInput(
            name + " is " + number + ", it must be " + least + " or more");
      }
      return value;
    }

    /** Nodes or predicates, all of one type, as the native side reads them. */
    private static Map<String, List<Object>> values(String name, Object given, DataType type) {
      List<Object> values = new ArrayList<>();
      DataType item = type;
      if (type instanceof ArrayType array) {
        item = array.elementType();
        ArrayData items = (ArrayData) given;
        for (int at = 0; at < items.numElements(); at++) {
          if (items.isNullAt(at)) {
            throw new LakemarkException.InvalidInput(name + " has a NULL in it; leave it out");
          }
          values.add(items.get(at, item));
        }
      } else {
        values.add(given);
      }
      return Map.of(kind(name, item), values.stream().map(BoundWalk::inJson).toList());
    }

    private static String kind(String name, DataType type) {
      if (type instanceof StringType || type instanceof NullType) {
        return "string";
      }
      if (type instanceof BinaryType) {
        return "binary";
      }
      if (type instanceof LongType
          || type instanceof IntegerType
          || type instanceof ShortType
          || type instanceof ByteType) {
        return "long";
      }
      if (type instanceof DecimalType decimal && decimal.scale() == 0) {
        return "decimal";
      }
      throw new LakemarkException.InvalidInput(
          String.format(
              "%s is of the type %s; nodes and predicates are whole numbers, texts or bytes",
              name, type.sql()));
    }

    private static Object inJson(Object value) {
      if (value instanceof byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
      }
      return value instanceof Number number ? (Object) number.longValue() : value.toString();
    }
  }
}

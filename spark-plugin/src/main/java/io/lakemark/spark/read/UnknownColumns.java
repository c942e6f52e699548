package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * What a table has and Spark's schema of it lacks, because others added it later. Statements do not
 * know of it and must leave it as it is.
 *
 * @param columns names of columns
 * @param fields fields inside of columns that Spark knows, with the way to them
 */
public record UnknownColumns(List<String> columns, List<String> fields) implements Serializable {
  /** Of a table that has nothing but what is in Spark's schema of it. */
  public static final UnknownColumns NONE = new UnknownColumns(List.of(), List.of());

  private static final String REMEDY =
      "nothing was changed: let Spark load the schema again (REFRESH TABLE; a name of Spark's own"
          + " catalog has to be dropped and created again) and run the statement again";

  /** As the native side gives it. */
  static UnknownColumns parse(JsonNode unknown) {
    return new UnknownColumns(texts(unknown.get("columns")), texts(unknown.get("fields")));
  }

  private static List<String> texts(JsonNode array) {
    List<String> texts = new ArrayList<>();
    array.forEach(text -> texts.add(text.asText()));
    return List.copyOf(texts);
  }

  /** What either of two states of a table has. */
  UnknownColumns with(UnknownColumns other) {
    return new UnknownColumns(union(columns, other.columns), union(fields, other.fields));
  }

  private static List<String> union(List<String> some, List<String> others) {
    return Stream.concat(some.stream(), others.stream()).distinct().toList();
  }

  /** Whether Spark's schema has all that the table has. */
  public boolean isEmpty() {
    return columns.isEmpty() && fields.isEmpty();
  }

  /** A column is set as a whole, so that a row would lose what it has in unknown fields. */
  public void checkUpdate(LakemarkOptions table) {
    if (!fields.isEmpty()) {
      throw refused(table, fields, "an update sets columns as a whole");
    }
  }

  /** A row that gets another key is a new row, which would have nothing in what is unknown. */
  public void checkMove(LakemarkOptions table) {
    if (!isEmpty()) {
      throw refused(table, union(columns, fields), "a row that gets another key is written anew");
    }
  }

  private static LakemarkException refused(
      LakemarkOptions table, List<String> unknown, String why) {
    return new LakemarkException.Conflict(
        String.format(
            "%s has %s, which Spark's schema of it lacks; %s and would lose what it has there, so"
                + " that %s",
            table.description(), String.join(", ", unknown), why, REMEDY));
  }
}

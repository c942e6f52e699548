package io.lakemark.spark.write;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.LakemarkOptions;
import io.lakemark.spark.storage.StorageSettings;
import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.spark.sql.RuntimeConfig;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What a write says of itself: in its options, or in settings of the session, since Spark takes no
 * options for {@code UPDATE}, {@code DELETE} and {@code MERGE}.
 *
 * @param operation what is done with the rows that are written
 * @param application the name under which the change is made once, or null
 * @param number the number of the change under that name
 * @param isNamedBySession whether both are settings of the session
 */
public record LakemarkChange(
    Operation operation, String application, long number, boolean isNamedBySession)
    implements Serializable {
  /** What is done with rows. */
  enum Operation {
    INSERT,
    UPSERT,
    UPDATE,
    DELETE;

    /** As users and the native side write it. */
    String text() {
      return name().toLowerCase(Locale.ROOT);
    }

    static Operation of(String text) {
      return Arrays.stream(values())
          .filter(each -> each.name().equalsIgnoreCase(text.strip()))
          .findFirst()
          .orElseThrow(
              () ->
                  new LakemarkException.InvalidInput(
                      "operation is " + text + "; it must be insert, upsert, update or delete"));
    }
  }

  /** The option of a write that names its {@link Operation}; without it rows are inserted. */
  public static final String OPERATION = "operation";

  private static final String APPLICATION = "txn_app_id";
  private static final String NUMBER = "txn_version";

  /** What the names of settings begin with that say of the next write what its options do not. */
  private static final String SETTING = "spark.lakemark.";

  /** Options in lower case, as {@link CaseInsensitiveStringMap} has them. */
  private static final List<String> KNOWN =
      Stream.concat(LakemarkOptions.KNOWN.stream(), Stream.of(OPERATION, APPLICATION, NUMBER))
          .toList();

  /**
   * What a write says; an option that is not known may be a slip that would change much.
   *
   * @param options of the write
   * @param session settings that name the next write, if its options do not
   */
  static LakemarkChange of(CaseInsensitiveStringMap options, RuntimeConfig session) {
    Set<String> unknown = new TreeSet<>(options.keySet());
    unknown.removeAll(KNOWN);
    unknown.removeIf(StorageSettings::isOption);
    if (!unknown.isEmpty()) {
      throw new LakemarkException.InvalidInput(
          String.format(
              "there is no option %s of a write; there are %s",
              String.join(", ", unknown), LakemarkOptions.listed(KNOWN)));
    }
    Operation operation = Operation.of(options.getOrDefault(OPERATION, "insert"));
    if (options.containsKey(APPLICATION) || options.containsKey(NUMBER)) {
      return of(operation, "", options.get(APPLICATION), options.get(NUMBER));
    }
    return of(
        operation,
        SETTING,
        session.get(SETTING + APPLICATION, null),
        session.get(SETTING + NUMBER, null));
  }

  private static LakemarkChange of(
      Operation operation, String prefix, String application, String number) {
    if ((application == null) != (number == null)) {
      throw new LakemarkException.InvalidInput(
          String.format(
              "%s and %s go together; give both or none%s",
              prefix + APPLICATION,
              prefix + NUMBER,
              prefix.isEmpty() ? "" : " (each write unsets both when it is made)"));
    }
    if (number == null) {
      return new LakemarkChange(operation, null, 0, false);
    }
    long parsed = parse(prefix + NUMBER, number);
    return new LakemarkChange(operation, application, parsed, !prefix.isEmpty());
  }

  /** The next write of the session is another one, which must not be left out. */
  void forget(RuntimeConfig session) {
    if (isNamedBySession) {
      session.unset(SETTING + APPLICATION);
      session.unset(SETTING + NUMBER);
    }
  }

  private static long parse(String name, String text) {
    try {
      long number = Long.parseLong(text.strip());
      if (number >= 0) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Said below.
    }
    throw new LakemarkException.InvalidInput(
        name + " is " + text + "; give a whole number from 0 on");
  }
}

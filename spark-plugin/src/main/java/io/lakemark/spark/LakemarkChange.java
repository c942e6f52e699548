package io.lakemark.spark;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What a write says of itself in its options.
 *
 * @param operation what is done with the rows that are written
 * @param application the name under which the change is made once, or null
 * @param number the number of the change under that name
 */
record LakemarkChange(Operation operation, String application, long number)
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

  static final String OPERATION = "operation";
  private static final String APPLICATION = "txn_app_id";
  private static final String NUMBER = "txn_version";

  /** Options in lower case, as {@link CaseInsensitiveStringMap} has them. */
  private static final Set<String> KNOWN =
      Set.of("path", "store", "use_index", "version", OPERATION, APPLICATION, NUMBER);

  /**
   * What the options of a write say; one that is not known may be a slip that would change much.
   */
  static LakemarkChange of(CaseInsensitiveStringMap options) {
    Set<String> unknown = new TreeSet<>(options.keySet());
    unknown.removeAll(KNOWN);
    if (!unknown.isEmpty()) {
      throw new LakemarkException.InvalidInput(
          String.format(
              "there is no option %s of a write; there are %s, %s and %s",
              String.join(", ", unknown), OPERATION, APPLICATION, NUMBER));
    }
    if (options.containsKey(APPLICATION) != options.containsKey(NUMBER)) {
      throw new LakemarkException.InvalidInput(
          APPLICATION + " and " + NUMBER + " go together; give both or none");
    }
    boolean isNamed = options.containsKey(APPLICATION);
    return new LakemarkChange(
        Operation.of(options.getOrDefault(OPERATION, "insert")),
        isNamed ? options.get(APPLICATION) : null,
        isNamed ? parse(options.get(NUMBER)) : 0);
  }

  private static long parse(String text) {
    try {
      long number = Long.parseLong(text.strip());
      if (number >= 0) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Said below.
    }
    throw new LakemarkException.InvalidInput(
        NUMBER + " is " + text + "; give a whole number from 0 on");
  }
}

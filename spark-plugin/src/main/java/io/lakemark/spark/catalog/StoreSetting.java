package io.lakemark.spark.catalog;

import java.util.Optional;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import scala.Option;

/**
 * The setting {@code spark.lakemark.store.PATH}, which says where the indexes of the table at a
 * path are.
 */
public final class StoreSetting {
  private static final String STORE = "spark.lakemark.store.";

  private StoreSetting() {}

  /** The store that a session names for a table, by its URL or its path. */
  public static Optional<String> of(SparkSession session, Path root) {
    Option<String> byUrl = session.conf().getOption(STORE + root);
    Option<String> named =
        byUrl.isDefined() ? byUrl : session.conf().getOption(STORE + root.toUri().getPath());
    return named.isDefined() ? Optional.of(named.get()) : Optional.empty();
  }
}

package io.lakemark.spark.extension;

import io.lakemark.spark.extension.SessionCache.ProbeKey;
import io.lakemark.spark.read.RowGroupSelection;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Finds the indexes of the tables that a scan reads, and probes them. */
final class IndexedFiles {
  /** The setting that allows versions of Spark that this was not tested on. */
  static final String UNTESTED_SPARK = "spark.lakemark.untested_spark";

  private static final Logger LOG = LoggerFactory.getLogger(IndexedFiles.class);

  private static final String USE_INDEX = "spark.lakemark.use_index";
  private static final String STORE = "spark.lakemark.store.";

  /** Spark then finds columns by numbers of its own, and not by their names. */
  private static final String FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled";

  private static final String EXECUTION_ID = "spark.sql.execution.id";

  /** The folder of indexes beside the data. */
  private static final String BESIDE = "_lakemark";

  private final SparkSession session;
  private final SessionCache memory;

  IndexedFiles(SparkSession session, SessionCache memory) {
    this.session = session;
    this.memory = memory;
  }

  /** Whether the session lets indexes be used, and reads columns by their names. */
  boolean isOn() {
    return session.conf().get(USE_INDEX, "true").equalsIgnoreCase("true")
        && !session.conf().get(FIELD_IDS, "false").equalsIgnoreCase("true");
  }

  /**
   * Probes the indexes of all tables below these paths; nothing if there are none, or if they rule
   * nothing out.
   */
  Optional<PrunedFiles> prune(Seq<Path> paths, ScanFilter filter) {
    Map<String, RowGroupSelection.PrunedFile> files = new HashMap<>();
    long total = 0;
    long skipped = 0;
    for (IndexedRoot table : tables(paths)) {
      if (filter.request().isEmpty() && memory.isWarned(table.text())) {
        continue;
      }
      RowGroupSelection choice = probe(table, filter);
      choice.files().forEach((path, file) -> files.put(table.root() + "/" + path, file));
      total += choice.rowGroupsTotal();
      skipped += choice.rowGroupsSkipped();
    }
    return files.isEmpty()
        ? Optional.empty()
        : Optional.of(new PrunedFiles(Map.copyOf(files), total, skipped));
  }

  private RowGroupSelection probe(IndexedRoot table, ScanFilter filter) {
    String execution = session.sparkContext().getLocalProperty(EXECUTION_ID);
    ProbeKey key = new ProbeKey(execution, table, filter);
    Optional<RowGroupSelection> known = execution == null ? Optional.empty() : memory.answer(key);
    if (known.isPresent()) {
      return known.get();
    }
    RowGroupSelection choice =
        RowGroupSelection.of(table.text(), table.store(), filter.request(), filter.columns());
    if (filter.request().isPresent()) {
      LOG.info(
          "Lakemark: the indexes of {} rule out {} of {} row groups",
          table.text(),
          choice.rowGroupsSkipped(),
          choice.rowGroupsTotal());
    }
    warn(table, choice);
    if (execution != null) {
      memory.remember(key, choice);
    }
    return choice;
  }

  private void warn(IndexedRoot table, RowGroupSelection choice) {
    if ((!choice.missesBuffered() && !choice.missesUnpublished())
        || !memory.addWarned(table.text())) {
      return;
    }
    LOG.warn(
        "{} has {} that this session does not see, because Spark reads the data files alone: read"
            + " it as spark.read.format(\"lakemark\").load(\"{}\") or in SQL as lm.`{}`, or compact"
            + " them into the files with CALL lm.system.migrate and CALL lm.system.publish",
        table.text(),
        choice.missesBuffered() ? "buffered changes" : "migrated changes that are not published",
        table.text(),
        table.text());
  }

  /** The tables that have indexes and could have files below these paths. */
  private Set<IndexedRoot> tables(Seq<Path> paths) {
    Configuration hadoop = session.sparkContext().hadoopConfiguration();
    Set<Path> seen = new LinkedHashSet<>();
    Set<IndexedRoot> tables = new LinkedHashSet<>();
    for (Path path : CollectionConverters.asJava(paths)) {
      for (Path folder : TableRoots.of(path, paths.size() == 1)) {
        if (!seen.add(folder)) {
          continue;
        }
        try {
          FileSystem system = folder.getFileSystem(hadoop);
          Path root = system.makeQualified(folder);
          Optional<String> store = store(root);
          if (store.isPresent() || system.exists(new Path(root, BESIDE))) {
            tables.add(new IndexedRoot(root, store.orElse(null)));
          }
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      }
    }
    return tables;
  }

  /** The store that the session names for a table, by its URL or its path. */
  private Optional<String> store(Path root) {
    Option<String> byUrl = session.conf().getOption(STORE + root);
    Option<String> named =
        byUrl.isDefined() ? byUrl : session.conf().getOption(STORE + root.toUri().getPath());
    return named.isDefined() ? Optional.of(named.get()) : Optional.empty();
  }
}

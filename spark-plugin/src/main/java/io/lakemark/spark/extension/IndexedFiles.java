package io.lakemark.spark.extension;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.catalog.StoreSetting;
import io.lakemark.spark.extension.SessionCache.ProbeKey;
import io.lakemark.spark.read.RowGroupSelection;
import io.lakemark.spark.storage.StorageSettings;
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
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Finds the indexes of the tables that a scan reads, and probes them. */
final class IndexedFiles {
  /** The setting that reads as if there were no indexes. */
  static final String USE_INDEX = "spark.lakemark.use_index";

  private static final Logger LOG = LoggerFactory.getLogger(IndexedFiles.class);

  private static final String DELTA = "spark.lakemark.delta";

  private static final String EXECUTION_ID = "spark.sql.execution.id";

  /** The folder of indexes beside the data. */
  private static final String BESIDE = "_lakemark";

  private final SparkSession session;
  private final SessionCache memory;

  IndexedFiles(SparkSession session, SessionCache memory) {
    this.session = session;
    this.memory = memory;
  }

  /** Whether the session lets indexes be used. */
  boolean isOn() {
    return session.conf().get(USE_INDEX, "true").equalsIgnoreCase("true");
  }

  /** Whether it lets those of Delta tables be used, which it reads by Delta. */
  boolean isOnForDelta() {
    return isOn() && session.conf().get(DELTA, "true").equalsIgnoreCase("true");
  }

  /**
   * Probes the indexes of all tables below these paths; nothing if there are none, or if they rule
   * nothing out.
   *
   * @param options of the scan, which may say how its files are reached
   */
  Optional<PrunedFiles> prune(Seq<Path> paths, ScanFilter filter, Map<String, String> options) {
    return prune(tables(paths, options), filter);
  }

  /** The same of the files of a version of a Delta table, which Delta lists. */
  Optional<PrunedFiles> pruneDelta(
      Path root, long version, ScanFilter filter, Map<String, String> options) {
    if (filter.request().isEmpty() || !isOnForDelta()) {
      return Optional.empty();
    }
    return table(root, options).flatMap(table -> prune(Set.of(table.at(version)), filter));
  }

  private Optional<PrunedFiles> prune(Set<IndexedRoot> tables, ScanFilter filter) {
    Map<String, RowGroupSelection.PrunedFile> files = new HashMap<>();
    long total = 0;
    long skipped = 0;
    for (IndexedRoot table : tables) {
      if (filter.request().isEmpty() && memory.isWarned(table.text())) {
        continue;
      }
      RowGroupSelection choice = probe(table, filter);
      choice.files().forEach((path, file) -> files.put(table.file(path), file));
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
        RowGroupSelection.of(
            table.text(), table.storageJson(), table.version(), filter.request(), filter.columns());
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

  /**
   * Whether a Delta table has changes that are buffered beside it. Looked up once in a query.
   *
   * <p>Whatever is wrong with indexes, there is Delta to read the table. But whoever cannot tell
   * whether changes are buffered must not read on without them.
   *
   * @throws LakemarkException where the store may have changes and cannot be read
   */
  boolean hasBuffered(IndexedRoot table) {
    return memory.hasBuffered(table, this::lookForBuffered);
  }

  private boolean lookForBuffered(IndexedRoot table) {
    try {
      return RowGroupSelection.missesBuffered(table.text(), table.storageJson());
    } catch (LakemarkException e) {
      switch (e.kind()) {
        case CORRUPT, STORE_MISMATCH, IO ->
            throw e.at(
                "nobody can tell which changes are buffered beside "
                    + table.text()
                    + ", which is not read without them unless "
                    + USE_INDEX
                    + "=false");
        default -> {
          if (memory.addWarned(String.valueOf(e.getMessage()))) {
            LOG.warn("Lakemark's indexes are not used for {}, which Delta reads", table.text(), e);
          }
          return false;
        }
      }
    }
  }

  /** The tables that have indexes and could have files below these paths. */
  private Set<IndexedRoot> tables(Seq<Path> paths, Map<String, String> options) {
    Configuration hadoop = configuration(options);
    Set<Path> seen = new LinkedHashSet<>();
    Set<IndexedRoot> tables = new LinkedHashSet<>();
    for (Path path : CollectionConverters.asJava(paths)) {
      for (Path folder : TableRoots.of(path, paths.size() == 1)) {
        if (seen.add(folder)) {
          table(folder, hadoop).ifPresent(tables::add);
        }
      }
    }
    return tables;
  }

  /**
   * The table of a folder, if it has indexes.
   *
   * @param options of the scan, which may say how its files are reached
   */
  Optional<IndexedRoot> table(Path folder, Map<String, String> options) {
    return table(folder, configuration(options));
  }

  private Optional<IndexedRoot> table(Path folder, Configuration hadoop) {
    try {
      FileSystem system = folder.getFileSystem(hadoop);
      Path root = system.makeQualified(folder);
      Optional<String> store = StoreSetting.of(session, root);
      return store.isPresent() || system.exists(new Path(root, BESIDE))
          ? Optional.of(
              new IndexedRoot(root, store.orElse(null), storage(root, store.orElse(null), hadoop)))
          : Optional.empty();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static StorageSettings storage(Path root, String store, Configuration hadoop) {
    boolean isRemote = StorageSettings.isRemote(root.toString()) || StorageSettings.isRemote(store);
    return isRemote ? StorageSettings.of(hadoop, Map.of()) : StorageSettings.NONE;
  }

  /** Hadoop's configuration as Spark's own scan has it: with what the session and the scan say. */
  private Configuration configuration(Map<String, String> options) {
    Configuration hadoop = session.sparkContext().hadoopConfiguration();
    Map<String, String> said = new HashMap<>();
    CollectionConverters.asJava(session.conf().getAll()).forEach(said::put);
    said.putAll(options);
    said.keySet().removeIf(name -> !StorageSettings.isOption(name));
    if (said.isEmpty()) {
      return hadoop;
    }
    Configuration both = new Configuration(hadoop);
    said.forEach(both::set);
    return both;
  }
}

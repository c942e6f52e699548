package io.lakemark.spark.extension;

import io.lakemark.spark.extension.SelectedRowGroups.ByteRange;
import io.lakemark.spark.extension.SelectedRowGroups.RowGroup;
import java.io.IOException;
import java.io.Serializable;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.spark.SparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.util.SerializableConfiguration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/** Reads the parts of a split that have row groups to be read, one after the other. */
final class RowGroupReader extends AbstractFunction1<PartitionedFile, Iterator<InternalRow>>
    implements Serializable {
  private static final long serialVersionUID = 1L;

  private static final Logger LOG = LoggerFactory.getLogger(RowGroupReader.class);
  private static final long SECOND = 1000;

  /** Whether this process has warned of a file that is not the one that was listed. */
  private static final AtomicBoolean HAS_WARNED = new AtomicBoolean();

  private final Function1<PartitionedFile, Iterator<InternalRow>> reader;
  private final Broadcast<SerializableConfiguration> hadoop;
  private final long openCost;
  private final boolean areReplaced;

  private RowGroupReader(
      Function1<PartitionedFile, Iterator<InternalRow>> reader,
      Broadcast<SerializableConfiguration> hadoop,
      long openCost,
      boolean areReplaced) {
    this.reader = reader;
    this.hadoop = hadoop;
    this.openCost = openCost;
    this.areReplaced = areReplaced;
  }

  /**
   * Cuts what a reader of splits reads.
   *
   * @param openCost bytes that opening a file is taken to cost at most
   * @param areReplaced whether others may put another file into the place of one. Delta never does,
   *     and the times that its log has need not be those of the files
   */
  static RowGroupReader of(
      Function1<PartitionedFile, Iterator<InternalRow>> reader,
      SparkContext context,
      Configuration hadoop,
      long openCost,
      boolean areReplaced) {
    Broadcast<SerializableConfiguration> shared =
        context.broadcast(
            new SerializableConfiguration(hadoop),
            ClassTag$.MODULE$.apply(SerializableConfiguration.class));
    return new RowGroupReader(reader, shared, openCost, areReplaced);
  }

  @Override
  public Iterator<InternalRow> apply(PartitionedFile split) {
    Option<Object> kept = split.otherConstantMetadataColumnValues().get(SelectedRowGroups.NAME);
    if (kept.isEmpty()) {
      return reader.apply(split);
    }
    ByteRange whole = new ByteRange(split.start(), split.start() + split.length());
    List<ByteRange> parts = parts(split, (SelectedRowGroups) kept.get(), whole);
    return parts.equals(List.of(whole))
        ? reader.apply(split)
        : new ByteRangeRows(reader, split, parts).rows();
  }

  private List<ByteRange> parts(PartitionedFile split, SelectedRowGroups kept, ByteRange whole) {
    try {
      Path path = split.toPath();
      FileStatus now = path.getFileSystem(hadoop.value().value()).getFileStatus(path);
      if (isListed(now, split)) {
        return kept.parts(whole, rowGroups(now), openCost);
      }
      warnOnce(now, split);
      return List.of(whole);
    } catch (IOException | RuntimeException | LinkageError e) {
      LOG.warn("Lakemark's indexes are not used for {}, which is read whole", split.filePath(), e);
      return List.of(whole);
    }
  }

  /**
   * Whether a file is the one that Spark listed, for which the row groups were selected. Others may
   * have put another one in its place since.
   */
  private boolean isListed(FileStatus now, PartitionedFile split) {
    return now.getLen() == split.fileSize()
        && (!areReplaced || isOneTime(now.getModificationTime(), split.modificationTime()));
  }

  /**
   * Whether two times of modification, in milliseconds, may be of one file: a store may list
   * milliseconds and answer in whole seconds for a request about the file alone.
   */
  static boolean isOneTime(long one, long other) {
    boolean isCut = one % SECOND == 0 || other % SECOND == 0;
    return one == other || (isCut && Math.floorDiv(one, SECOND) == Math.floorDiv(other, SECOND));
  }

  private static void warnOnce(FileStatus now, PartitionedFile split) {
    if (HAS_WARNED.compareAndSet(false, true)) {
      LOG.warn(
          "Lakemark's indexes are not used for {}, which is read whole: {} bytes modified at {}"
              + " were listed, and {} bytes modified at {} are there now. This is logged once",
          split.filePath(),
          split.fileSize(),
          Instant.ofEpochMilli(split.modificationTime()),
          now.getLen(),
          Instant.ofEpochMilli(now.getModificationTime()));
    }
  }

  private List<RowGroup> rowGroups(FileStatus listed) throws IOException {
    HadoopInputFile file = HadoopInputFile.fromStatus(listed, hadoop.value().value());
    try (ParquetFileReader footer = ParquetFileReader.open(file)) {
      return footer.getRowGroups().stream().map(RowGroupReader::rowGroup).toList();
    }
  }

  private static RowGroup rowGroup(BlockMetaData block) {
    return new RowGroup(
        block.getStartingPos(),
        block.getCompressedSize(),
        block.getRowCount(),
        block.getColumns().size());
  }
}

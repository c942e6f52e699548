package io.lakemark.spark.extension;

import io.lakemark.spark.read.RowGroupSelection.PrunedFile;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The files that Spark or Delta has listed without those that the indexes rule out. A file of which
 * some row groups are to be read says so in its metadata, which go with each of its splits.
 *
 * <p>Two are equal if the indexes below are: what the indexes rule out follows from the filters of
 * the scan, which Spark compares itself, so that exchanges are shared as ever.
 */
final class LakemarkFileIndex implements FileIndex {
  private static final Logger LOG = LoggerFactory.getLogger(LakemarkFileIndex.class);

  private final FileIndex listed;
  private final PrunedFiles chosen;
  private final boolean isCut;

  /**
   * Files without those that the indexes rule out.
   *
   * @param isCut whether the format reads some row groups of a file
   */
  LakemarkFileIndex(FileIndex listed, PrunedFiles chosen, boolean isCut) {
    this.listed = listed;
    this.chosen = chosen;
    this.isCut = isCut;
  }

  @Override
  public Seq<PartitionDirectory> listFiles(
      Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    Seq<PartitionDirectory> folders = listed.listFiles(partitionFilters, dataFilters);
    try {
      List<PartitionDirectory> left = new ArrayList<>();
      for (PartitionDirectory folder : CollectionConverters.asJava(folders)) {
        Seq<FileStatusWithMetadata> files = left(folder.files());
        if (!files.isEmpty()) {
          left.add(folder.copy(folder.values(), files));
        }
      }
      return CollectionConverters.asScala(left).toSeq();
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("Lakemark's indexes are not used for a scan, which reads all files", e);
      return folders;
    }
  }

  private Seq<FileStatusWithMetadata> left(Seq<FileStatusWithMetadata> files) {
    List<FileStatusWithMetadata> left = new ArrayList<>();
    for (FileStatusWithMetadata file : CollectionConverters.asJava(files)) {
      Optional<PrunedFile> known = chosen.of(file);
      if (known.isEmpty()) {
        left.add(file);
      } else if (!known.get().kept().isEmpty()) {
        left.add(isCut ? tagged(file, known.get()) : file);
      }
    }
    return CollectionConverters.asScala(left).toSeq();
  }

  @SuppressWarnings("unchecked") // Scala gives no type to the values of the map.
  private static FileStatusWithMetadata tagged(FileStatusWithMetadata file, PrunedFile known) {
    SelectedRowGroups kept = new SelectedRowGroups(known.rowGroups(), known.rows(), known.kept());
    return file.copy(
        file.fileStatus(),
        file.metadata().$plus(new Tuple2<>(SelectedRowGroups.NAME, (Object) kept)));
  }

  @Override
  public Seq<Path> rootPaths() {
    return listed.rootPaths();
  }

  @Override
  public String[] inputFiles() {
    return listed.inputFiles();
  }

  @Override
  public void refresh() {
    listed.refresh();
  }

  @Override
  public long sizeInBytes() {
    return listed.sizeInBytes();
  }

  @Override
  public StructType partitionSchema() {
    return listed.partitionSchema();
  }

  @Override
  public Option<Object> metadataOpsTimeNs() {
    return listed.metadataOpsTimeNs();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof LakemarkFileIndex index && listed.equals(index.listed);
  }

  @Override
  public int hashCode() {
    return listed.hashCode();
  }
}

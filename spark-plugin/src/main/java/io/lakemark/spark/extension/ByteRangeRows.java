package io.lakemark.spark.extension;

import io.lakemark.spark.extension.SelectedRowGroups.ByteRange;
import java.io.Closeable;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import scala.Function1;
import scala.collection.AbstractIterator;

/** The rows of some parts of a split, or their batches where Spark reads batches. */
final class ByteRangeRows extends AbstractIterator<Object> implements Closeable {
  private final Function1<PartitionedFile, scala.collection.Iterator<InternalRow>> reader;
  private final PartitionedFile split;
  private final Iterator<ByteRange> parts;
  private scala.collection.Iterator<?> current;

  ByteRangeRows(
      Function1<PartitionedFile, scala.collection.Iterator<InternalRow>> reader,
      PartitionedFile split,
      List<ByteRange> parts) {
    this.reader = reader;
    this.split = split;
    this.parts = parts.iterator();
  }

  /** As Spark types what may be rows or batches. */
  @SuppressWarnings("unchecked")
  scala.collection.Iterator<InternalRow> rows() {
    return (scala.collection.Iterator<InternalRow>) (scala.collection.Iterator<?>) this;
  }

  @Override
  public boolean hasNext() {
    while (current == null || !current.hasNext()) {
      if (!parts.hasNext()) {
        return false;
      }
      close();
      ByteRange part = parts.next();
      current = reader.apply(of(part));
    }
    return true;
  }

  private PartitionedFile of(ByteRange part) {
    return split.copy(
        split.partitionValues(),
        split.filePath(),
        part.start(),
        part.end() - part.start(),
        split.locations(),
        split.modificationTime(),
        split.fileSize(),
        split.otherConstantMetadataColumnValues());
  }

  @Override
  public Object next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    return current.next();
  }

  @Override
  public void close() {
    if (current instanceof Closeable open) {
      try {
        open.close();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}

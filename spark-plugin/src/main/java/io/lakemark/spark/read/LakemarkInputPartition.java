package io.lakemark.spark.read;

import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * What one task reads: a split, of one file or several.
 *
 * @param inputs what is read one after the other
 * @param rows how many rows they give, or {@link #UNKNOWN_ROWS}
 * @param bytes how many bytes of files are read, roughly
 */
record LakemarkInputPartition(List<Input> inputs, long rows, long bytes) implements InputPartition {
  static final long UNKNOWN_ROWS = -1;

  /**
   * Rows of one file, or sent with the task.
   *
   * @param body the input as the native side wrote it
   * @param attachment which rows of a file, or the rows themselves, as the native side wrote them
   */
  @SuppressWarnings("ArrayRecordComponent") // Compared by content.
  record Input(String body, byte[] attachment) implements Serializable {
    @Override
    public boolean equals(Object other) {
      return other instanceof Input input
          && body.equals(input.body)
          && Arrays.equals(attachment, input.attachment);
    }

    @Override
    public int hashCode() {
      return 31 * body.hashCode() + Arrays.hashCode(attachment);
    }
  }
}

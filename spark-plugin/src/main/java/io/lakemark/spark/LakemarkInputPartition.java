package io.lakemark.spark;

import org.apache.spark.sql.connector.read.InputPartition;

/**
 * The rows that one task reads, of one file or sent with the task.
 *
 * @param body the split as the native side wrote it
 * @param rows how many rows it gives, or {@link #UNKNOWN_ROWS}
 * @param bytes how many bytes of the file it reads, roughly
 * @param attachment the rows that are sent with the task, as the native side wrote them
 */
record LakemarkInputPartition(String body, long rows, long bytes, byte[] attachment)
    implements InputPartition {
  static final long UNKNOWN_ROWS = -1;
}

package io.lakemark.spark;

import org.apache.spark.sql.connector.read.InputPartition;

/**
 * The rows that one task reads, of one file or sent with the task.
 *
 * @param body the split as the native side wrote it
 * @param rows how many rows it gives, or {@link #UNKNOWN_ROWS}
 * @param bytes how many bytes of the file it reads, roughly
 */
record LakemarkInputPartition(String body, long rows, long bytes) implements InputPartition {
  static final long UNKNOWN_ROWS = -1;
}

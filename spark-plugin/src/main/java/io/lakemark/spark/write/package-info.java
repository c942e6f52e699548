/**
 * Changes: tasks write rows into files of the store, and the driver names all of them in one call.
 *
 * <p>It uses {@code read}, for the rows that a statement changes, and {@code jni}. {@code catalog}
 * may use it.
 *
 * <p>Invariant: nothing of a statement is to be seen before the driver's one call, and all of it
 * after that, however often Spark runs a task.
 */
package io.lakemark.spark.write;

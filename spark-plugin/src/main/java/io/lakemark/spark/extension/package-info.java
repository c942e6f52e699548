/**
 * Existing Spark code, unchanged: an opt-in extension of a session under which Spark's own scans of
 * Parquet use the indexes that lie beside the data.
 *
 * <p>{@link io.lakemark.spark.extension.LakemarkExtension} puts a strategy before Spark's. For a
 * scan of Parquet files with a filter, it probes the indexes while the query is planned. Spark's
 * own strategy plans the scan as ever, but over a file index that leaves files out and a file
 * format that reads some row groups of the others. Filters stay with Spark; nothing above the scan
 * knows.
 *
 * <p>It uses {@code read}. Spark loads it by name, and no other package uses it.
 *
 * <p>Only this package knows classes of Spark that are not its public interface for connectors, and
 * it is off on versions of Spark that it was not tested on.
 *
 * <p>Invariant: a scan gives the rows that it would give without the extension. Whatever fails
 * leaves the plan as Spark makes it.
 */
package io.lakemark.spark.extension;

/**
 * What is added to sessions: Spark's own scans of Parquet use the indexes that lie beside the data,
 * and the connector knows which of its tables are joined.
 *
 * <p>{@link io.lakemark.spark.extension.ConnectorExtension} is in each session that has the jar.
 * Its rule looks at plans and changes none.
 *
 * <p>{@link io.lakemark.spark.extension.LakemarkExtension} is in sessions that ask for it, and
 * existing Spark code needs no change. It puts a strategy before Spark's. For a scan of Parquet
 * files with a filter, it probes the indexes while the query is planned. Spark's own strategy plans
 * the scan as ever, but over a file index that leaves files out and a file format that reads some
 * row groups of the others. Filters stay with Spark; nothing above the scan knows.
 *
 * <p>It uses {@code read}. Spark loads it by name, and no other package uses it.
 *
 * <p>Only this package knows Spark's plans. The strategy is off on versions of Spark that it was
 * not tested on.
 *
 * <p>Invariant: a scan gives the rows that it would give without the extension. Whatever fails
 * leaves the plan as Spark makes it.
 */
package io.lakemark.spark.extension;

/**
 * What is added to sessions: Spark's own scans of Parquet and Delta's scans of its tables use the
 * indexes that lie beside the data, and the connector knows which of its tables are joined.
 *
 * <p>{@link io.lakemark.spark.extension.ConnectorExtension} is in each session that has the jar.
 * Its rule looks at plans and changes none.
 *
 * <p>{@link io.lakemark.spark.extension.LakemarkExtension} is in sessions that ask for it, and
 * existing Spark code needs no change. For a planned scan of Parquet files with a filter it probes
 * the indexes. The scan stays as Spark has planned it, but over a file index that leaves files out
 * and a file format that reads some row groups of the others. Filters stay with Spark; nothing
 * above the scan knows. A scan of a Delta table is one of the version that Delta has selected, by
 * Delta's own format. A Delta table with buffered changes is read by the connector's scan instead,
 * or not at all.
 *
 * <p>It uses {@code catalog} and {@code read}. Spark loads it by name, and no other package uses
 * it.
 *
 * <p>Only this package knows Spark's plans, and it knows Delta's classes by their names alone. The
 * rules are off on versions of Spark that they were not tested on.
 *
 * <p>Invariant: a scan gives the rows that it would give without the extension, and those of a
 * Delta table never lack a buffered change unseen. Whatever else fails leaves the plan as Spark
 * makes it.
 */
package io.lakemark.spark.extension;

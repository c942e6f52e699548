/**
 * The Spark data source of Lakemark: {@code spark.read().format("lakemark").load(path)}.
 *
 * <p>Spark plans here, on the driver, and the Rust library answers. Filters cross as a small JSON
 * tree ({@link io.lakemark.spark.read.PredicateTranslator}). A plan comes back as splits with row
 * ranges. Record batches come back through the Arrow C stream interface. Rows that tasks change go
 * the other way, as Arrow C arrays into files of the store. The driver names all of these files in
 * one call ({@link io.lakemark.spark.write.LakemarkWrite}). Nothing else crosses.
 *
 * <p>Here is what a user names, and so stays where it is: the source, the catalog, what explains a
 * query, options and exceptions. The packages below use of these {@link
 * io.lakemark.spark.LakemarkException}, {@link io.lakemark.spark.LakemarkOptions} and {@link
 * io.lakemark.spark.LakemarkVersion} alone, and each other from top to bottom:
 *
 * <ul>
 *   <li>{@code extension}: Spark's own scans of Parquet files use the index files beside them;
 *   <li>{@code catalog}: tables, procedures, builds;
 *   <li>{@code write}: changes;
 *   <li>{@code read}: scans; {@link io.lakemark.spark.read.LakemarkScanBuilder} decides what Spark
 *       still has to do itself;
 *   <li>{@code storage}: how object stores are reached, and who gives credentials;
 *   <li>{@code jni}: the way into the Rust library.
 * </ul>
 *
 * <p>Options: {@code path} (a folder, a file, a glob or a Delta table) and {@code store} (where the
 * indexes are, if not in {@code _lakemark/} beside the data). Configuration that a session needs:
 * {@code spark.jars} (or {@code spark.driver.extraClassPath}) naming the jar of this module;
 * nothing else. The system property {@code lakemark.native.path} names a native library to load
 * instead of the one in the jar.
 */
package io.lakemark.spark;

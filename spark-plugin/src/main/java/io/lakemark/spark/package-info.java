/**
 * The Spark data source of Lakemark: {@code spark.read().format("lakemark").load(path)}.
 *
 * <p>Spark plans here, on the driver, and the Rust library answers: filters cross as a small JSON
 * tree ({@link io.lakemark.spark.PredicateTranslator}), a plan comes back as splits with row
 * ranges, and record batches come back through the Arrow C stream interface. Rows that tasks change
 * go the other way as Arrow C arrays into files of the store, and the driver names all of them in
 * one call ({@link io.lakemark.spark.LakemarkWrite}). Nothing else crosses. The types are:
 *
 * <ul>
 *   <li>{@link io.lakemark.spark.LakemarkSource}, the registered source, and its {@link
 *       io.lakemark.spark.LakemarkTable};
 *   <li>{@link io.lakemark.spark.LakemarkScanBuilder}, which decides what Spark still has to do
 *       itself;
 *   <li>{@link io.lakemark.spark.LakemarkCatalog}, which gives SQL the tables by name, with {@link
 *       io.lakemark.spark.Procedures} and {@code CREATE INDEX};
 *   <li>{@link io.lakemark.spark.LakemarkException}, the one exception of the native side.
 * </ul>
 *
 * <p>Options: {@code path} (a folder, a file, a glob or a Delta table) and {@code store} (where the
 * marks are, if not in {@code _lakemark/} beside the data). Configuration that a session needs:
 * {@code spark.jars} (or {@code spark.driver.extraClassPath}) naming the jar of this module;
 * nothing else. The system property {@code lakemark.native.path} names a native library to load
 * instead of the one in the jar.
 */
package io.lakemark.spark;

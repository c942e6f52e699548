/**
 * Tables and what can be done with them: their indexes, procedures, builds as jobs of Spark's.
 *
 * <p>It uses {@code read}, {@code write} and {@code jni}. The classes that Spark loads by name, in
 * the package above, use it.
 *
 * <p>Invariant: a table holds nothing native; each query and each call pins its own snapshot.
 */
package io.lakemark.spark.catalog;

/**
 * Scans: what Spark pushes down is translated, the driver requests a plan from the Rust library,
 * and tasks read its splits.
 *
 * <p>It uses {@code jni}. {@code write}, {@code catalog} and {@code extension} may use it.
 *
 * <p>Invariant: a filter, an aggregate, a limit or an order is taken from Spark only where the
 * answer is exactly that of Spark. Else Spark does it above the scan. A query reads one snapshot,
 * whose number every task has.
 */
package io.lakemark.spark.read;

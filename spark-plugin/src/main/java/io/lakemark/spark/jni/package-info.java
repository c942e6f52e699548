/**
 * The way into the Rust library, and what crosses it: JSON, streams of record batches, the memory
 * of a task, exceptions of this side.
 *
 * <p>It uses none of the other packages, and every one of them may use it. Nothing in it knows
 * Spark's interfaces for connectors.
 *
 * <p>Invariant: the object that opened something native closes it, once. A call after that, or a
 * library of another release, is an error with words and never a crash.
 */
package io.lakemark.spark.jni;

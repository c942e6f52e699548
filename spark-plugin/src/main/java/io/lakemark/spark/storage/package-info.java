/**
 * How files of tables are reached: what Hadoop's configuration and options of tables say of object
 * stores, in the words of the Rust library, and the classes that give credentials.
 *
 * <p>It uses {@code jni}. Options of a table carry its settings to wherever the table is opened.
 *
 * <p>Invariant: no text for people has a secret in it. A class that gives credentials is asked in
 * the process that needs them, anew each time.
 */
package io.lakemark.spark.storage;

package io.lakemark.spark.read;

import org.apache.arrow.vector.ValueVector;
import org.apache.spark.sql.vectorized.ArrowColumnVector;

/**
 * A vector that belongs to a stream and is closed with it.
 *
 * <p>Spark closes the vectors of each batch when it has turned them into rows. A closed Arrow
 * struct forgets its fields, and the next batch of the same stream could not be loaded into it.
 */
final class StreamColumnVector extends ArrowColumnVector {
  StreamColumnVector(ValueVector vector) {
    super(vector);
  }

  @Override
  public void close() {}
}

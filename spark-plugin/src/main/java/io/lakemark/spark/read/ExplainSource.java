package io.lakemark.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;

/** A part of a plan of Spark's that can say what it reads. */
public interface ExplainSource {
  /** What is read and why, with the names that {@code python/lakemark/spark_report.py} reads. */
  ObjectNode explainJson();
}

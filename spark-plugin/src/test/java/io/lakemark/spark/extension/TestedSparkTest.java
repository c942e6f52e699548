package io.lakemark.spark.extension;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

final class TestedSparkTest {
  @Test
  void onlyVersionsThatTheTestsRanOnAreTrusted() {
    for (String tested : List.of("4.1.3", "4.1.4", "4.2.1", "4.3.0")) {
      assertTrue(TestedSpark.PARQUET.has(tested), tested);
    }
    for (String other : List.of("4.0.1", "4.4.0", "4.10.0", "4.30.0", "5.1.0", "")) {
      assertFalse(TestedSpark.PARQUET.has(other), other);
    }
  }

  @Test
  void deltaIsTrustedOnVersionsThatItHasAReleaseFor() {
    assertTrue(TestedSpark.DELTA.has("4.1.4"));
    assertTrue(TestedSpark.DELTA.has("4.2.0"));
    assertFalse(TestedSpark.DELTA.has("4.3.0"));
  }
}

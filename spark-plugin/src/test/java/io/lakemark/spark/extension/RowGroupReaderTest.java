package io.lakemark.spark.extension;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class RowGroupReaderTest {
  @ParameterizedTest
  @CsvSource({
    // Both have milliseconds: a file that was written anew within a second is another one.
    "1764126000123, 1764126000123, true",
    "1764126000123, 1764126000124, false",
    // One was cut to seconds.
    "1764126000000, 1764126000000, true",
    "1764126000000, 1764126000123, true",
    "1764126000000, 1764126000999, true",
    "1764126000000, 1764126001000, false",
    "1764126000000, 1764125999999, false",
    "1764126000000, 1764126001123, false",
    "0, 999, true",
    "0, -1, false",
  })
  void aTimeInWholeSecondsIsThatOfItsMilliseconds(long one, long other, boolean isOne) {
    assertEquals(isOne, RowGroupReader.isOneTime(one, other));
    assertEquals(isOne, RowGroupReader.isOneTime(other, one));
  }
}

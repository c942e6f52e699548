package io.lakemark.spark.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakemark.spark.LakemarkException;
import io.lakemark.spark.write.StagedSchema;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

class CollationsTest {
  private static final StructType PLAIN =
      StructType.fromDDL(
          "id BIGINT NOT NULL, s STRING, p STRUCT<x: STRING, y: ARRAY<STRING>>, m MAP<STRING, STRING>,"
              + " n BIGINT");

  @Test
  void textsHaveTheCollationsThatSparkGaveThem() {
    StructType said =
        StructType.fromDDL(
            "n STRING COLLATE UTF8_LCASE, s STRING COLLATE UTF8_LCASE,"
                + " p STRUCT<y: ARRAY<STRING COLLATE UNICODE_CI>>,"
                + " m MAP<STRING, STRING COLLATE UTF8_BINARY_RTRIM>, gone STRING COLLATE UTF8_LCASE");
    // What Spark says of a column of another type, or of none that is there, counts for nothing.
    StructType expected =
        StructType.fromDDL(
            "id BIGINT NOT NULL, s STRING COLLATE UTF8_LCASE,"
                + " p STRUCT<x: STRING, y: ARRAY<STRING COLLATE UNICODE_CI>>,"
                + " m MAP<STRING, STRING COLLATE UTF8_BINARY_RTRIM>, n BIGINT");
    assertEquals(expected, Collations.of(PLAIN, said.json()));
    assertEquals(PLAIN, Collations.without(expected));
    assertEquals(PLAIN, Collations.of(PLAIN, PLAIN.json()));
  }

  @Test
  void lengthsOfTextsAreLeftAlone() {
    StructType said = StructType.fromDDL("s CHAR(5), p STRUCT<x: VARCHAR(5)>");
    assertEquals(PLAIN, Collations.of(PLAIN, said.json()));
  }

  @Test
  void collationsThatThisSparkDoesNotHaveAreRefused() {
    String said =
        StructType.fromDDL("s STRING COLLATE UTF8_LCASE").json().replace("UTF8_LCASE", "UTF9");
    LakemarkException.Unsupported error =
        assertThrows(LakemarkException.Unsupported.class, () -> Collations.of(PLAIN, said));
    assertTrue(error.getMessage().contains("read it with the version that wrote it"));
  }

  @Test
  void rowsThatAreWrittenHaveTextsWithoutCollations() {
    StructType collated =
        StructType.fromDDL("s STRING COLLATE UTF8_LCASE, l ARRAY<STRING COLLATE UNICODE_CI>");
    assertEquals(
        StagedSchema.of(StructType.fromDDL("s STRING, l ARRAY<STRING>")),
        StagedSchema.of(collated));
  }
}

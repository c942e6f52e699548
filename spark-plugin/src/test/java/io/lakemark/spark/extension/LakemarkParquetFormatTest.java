package io.lakemark.spark.extension;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructField;
import org.junit.jupiter.api.Test;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

final class LakemarkParquetFormatTest {
  private static final PrunedFiles ALL_BUT_ONE = new PrunedFiles(Map.of(), 30, 29);

  /** A format that stands for Delta's: it says other things than Spark's own does. */
  private static final class OtherFormat extends ParquetFileFormat {
    private static final long serialVersionUID = 1L;

    private static final Seq<StructField> FIELDS =
        CollectionConverters.asScala(List.<StructField>of()).toSeq();

    @Override
    public Seq<StructField> metadataSchemaFields() {
      return FIELDS;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof OtherFormat;
    }

    @Override
    public int hashCode() {
      return 1;
    }
  }

  @Test
  void thisVersionOfSparkRequestsReadersAsItIsDoneHere() {
    assertTrue(LakemarkParquetFormat.isKnown());
  }

  @Test
  void whatTheIndexesSkipStandsBehindTheName() {
    assertEquals(
        "Parquet, 29 of 30 row groups skipped by the index",
        new LakemarkParquetFormat(new ParquetFileFormat(), ALL_BUT_ONE, true).toString());
  }

  @Test
  void allElseIsWhatTheOtherFormatSays() {
    LakemarkParquetFormat format = new LakemarkParquetFormat(new OtherFormat(), ALL_BUT_ONE, false);
    assertSame(OtherFormat.FIELDS, format.metadataSchemaFields());
  }

  @Test
  void filesOfEqualFormatsAreEqual() {
    PrunedFiles none = new PrunedFiles(Map.of(), 30, 0);
    LakemarkParquetFormat format = new LakemarkParquetFormat(new OtherFormat(), ALL_BUT_ONE, false);
    LakemarkParquetFormat same = new LakemarkParquetFormat(new OtherFormat(), none, false);
    assertEquals(format, same);
    assertEquals(format.hashCode(), same.hashCode());
    LakemarkParquetFormat other = new LakemarkParquetFormat(new ParquetFileFormat(), none, false);
    assertNotEquals(format, other);
  }
}

package io.lakemark.spark.write;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.junit.jupiter.api.Test;

class StagedSchemaTest {
  @Test
  void schemasAreThoseOfSparkItself() {
    StructType columns =
        StructType.fromDDL(
            "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT NOT NULL, f FLOAT, g DOUBLE, h STRING,"
                + " i BINARY, j DATE, k TIMESTAMP, l TIMESTAMP_NTZ, m DECIMAL(38, 10),"
                + " n ARRAY<STRUCT<x: ARRAY<SMALLINT>, y: DECIMAL(5, 2) NOT NULL>>,"
                + " o MAP<STRING, MAP<INT, DATE>>, p STRUCT<q: STRUCT<r: STRING>>");
    assertEquals(ArrowUtils.toArrowSchema(columns, "UTC", true, false), StagedSchema.of(columns));
  }
}

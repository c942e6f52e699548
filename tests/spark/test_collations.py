"""Texts with a collation, and CHAR: the connector answers as Spark's own reader does, with and without an index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from spark_tables import same_rows
from test_errors import failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = """
    id BIGINT, lc STRING COLLATE UTF8_LCASE, un STRING COLLATE UNICODE_CI, rt STRING COLLATE UTF8_BINARY_RTRIM,
    p STRUCT<x: STRING COLLATE UTF8_LCASE, y: ARRAY<STRING COLLATE UNICODE_CI>>,
    m MAP<STRING, STRING COLLATE UTF8_LCASE>, ch CHAR(5), vc VARCHAR(5), s STRING
"""
ROWS = """
    SELECT id, element_at(array('a', 'A', 'ab', 'AB', 'ä', 'Ä', NULL), CAST(id % 7 + 1 AS INT)),
        element_at(array('a', 'A', 'ab', 'AB', 'ä', 'Ä', NULL), CAST(id % 7 + 1 AS INT)),
        element_at(array('a', 'a ', 'b', 'b  '), CAST(id % 4 + 1 AS INT)),
        named_struct('x', IF(id % 2 = 0, 'q', 'Q'), 'y', array('z', 'Z')), map('K', IF(id % 2 = 0, 'v', 'V')),
        element_at(array('a', 'ab', 'abcde'), CAST(id % 3 + 1 AS INT)),
        element_at(array('a', 'ab ', 'abcde'), CAST(id % 3 + 1 AS INT)),
        element_at(array('a', 'A', 'b'), CAST(id % 3 + 1 AS INT))
    FROM range(300)
"""
CONDITIONS = [
    *("lc = 'a'", "lc <=> 'A'", "lc != 'A'", "lc IN ('AB', 'ä')", "lc NOT IN ('ab')", "lc LIKE 'a%'", "lc > 'AA'"),
    *("startswith(lc, 'A')", "lc >= 'A' AND lc <= 'Ab'", "lc IS NULL", "lc IS NOT NULL AND id < 20"),
    *("un = 'A'", "un IN ('Ä')", "un >= 'ab'", "rt = 'a'", "rt = 'b      '", "rt IN ('a  ', 'c')"),
    *("p.x = 'q'", "p.x > 'P'", "array_contains(p.y, 'Z')", "m['K'] = 'V'", "lc = un COLLATE UTF8_LCASE"),
    *("lc = 'a' AND id < 40", "lc = 'a' OR s = 'A'", "NOT (lc = 'a')", "lower(lc) = 'AB'", "contains(un, 'B')"),
    *("ch = 'a'", "ch = 'a    '", "ch LIKE 'a%b'", "length(ch) = 5", "ch IN ('a', 'ab   ')", "ch > 'a'", "ch = s"),
    *("vc = 'ab'", "vc = 'ab '", "s = 'a'", "s IN ('A', 'b')"),
]
AGGREGATES = [
    "SELECT lc, count(*) FROM {} GROUP BY lc",
    "SELECT rt, count(*) FROM {} WHERE id > 7 GROUP BY rt",
    "SELECT count(DISTINCT lc), count(DISTINCT un), count(DISTINCT rt), count(DISTINCT ch), count(lc) FROM {}",
    "SELECT min(lc), max(un), min(rt), max(ch), min(s) FROM {}",
    "SELECT lc FROM {} ORDER BY lc, id LIMIT 5",
    "SELECT DISTINCT un FROM {}",
    "SELECT count(*) FROM {0} a JOIN {0} b ON a.lc = b.lc WHERE a.id < 9 AND b.s = 'a'",
    "SELECT count(*) FROM {0} WHERE lc IN (SELECT lc FROM {0} WHERE id = 3)",
]


def ours(spark: SparkSession, path: Path, *, use_index: bool) -> DataFrame:
    return spark.read.format("lakemark").option("use_index", use_index).load(str(path))


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A table that Spark wrote, with an index on every column of texts."""
    path = tmp_path_factory.mktemp("collations") / "t"
    spark.sql(f"CREATE TABLE spark_catalog.default.collated ({COLUMNS}) USING parquet LOCATION '{path}'")
    spark.sql(f"INSERT INTO spark_catalog.default.collated {ROWS}")
    table = lakemark.Table(path)
    for column in ("id", "lc", "un", "rt", "p.x", "ch", "vc", "s"):
        table.create_index(column)
    yield path
    spark.sql("DROP TABLE spark_catalog.default.collated")


def test_columns_have_the_types_that_spark_gave_them(spark: SparkSession, written: Path) -> None:
    expected = spark.read.parquet(str(written)).schema
    assert expected["lc"].dataType.simpleString() == "string collate UTF8_LCASE"
    for use_index in (True, False):
        assert ours(spark, written, use_index=use_index).schema == expected
    assert spark.table(f"lm.`{written}`").schema == expected


def test_answers_are_those_of_sparks_own_reader(spark: SparkSession, written: Path) -> None:
    own = spark.read.parquet(str(written))
    own.createOrReplaceTempView("own")
    # Counted in one query, and asked one by one of the connector, which is handed conditions only in filters.
    wanted = list(own.selectExpr(*[f"count_if({condition})" for condition in CONDITIONS]).collect()[0])
    for use_index in (True, False):
        ours(spark, written, use_index=use_index).createOrReplaceTempView("ours")
        found = [spark.sql(f"SELECT * FROM ours WHERE {condition}").count() for condition in CONDITIONS]
        differ = [each for each in zip(CONDITIONS, found, wanted, strict=True) if each[1] != each[2]]
        assert not differ
        for sql in AGGREGATES:
            assert same_rows(spark.sql(sql.format("ours")), spark.sql(sql.format("own")))
    counts = dict(zip(CONDITIONS, wanted, strict=True))
    # 43 rows have an 'a', as many an 'A'.
    assert (counts["lc = 'a'"], counts["rt = 'a'"], counts["ch = 'a'"], counts["ch = 'a    '"]) == (86, 150, 0, 100)


def test_filters_on_collated_texts_stay_with_spark(spark: SparkSession, written: Path) -> None:
    frame = ours(spark, written, use_index=True)
    plan = frame.where("lc = 'a' AND s = 'a'")._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001
    scan = next(line for line in plan.splitlines() if "lakemark" in line.lower())
    assert "s = 'a'" in scan.replace('"', "")
    assert "lc = 'a'" not in scan


def test_changes_and_migrations_keep_collations(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE spark_catalog.default.changed ({COLUMNS}) USING parquet LOCATION '{path}'")
    try:
        spark.sql(f"INSERT INTO spark_catalog.default.changed {ROWS}")
    finally:
        spark.sql("DROP TABLE spark_catalog.default.changed")
    table = lakemark.Table(path, key="id")
    spark.sql(f"UPDATE lm.`{path}` SET lc = 'AB' WHERE lc = 'a' AND id < 100")
    spark.sql(f"INSERT INTO lm.`{path}` (id, lc, rt) VALUES (1000, 'aB', 'a    ')")
    spark.sql(f"DELETE FROM lm.`{path}` WHERE un = 'Ä' AND id > 200")
    counts = f"SELECT count(*), count_if(lc = 'ab'), count_if(rt = 'a'), count_if(un = 'ä') FROM lm.`{path}`"
    expected = spark.sql(counts).first()
    # Of the ids below 100 there are 15 with an 'a' and 15 with an 'A'; 29 rows with an 'ä' or an 'Ä' follow the id 200.
    assert (expected[0], expected[1]) == (301 - 29, 86 + 30 + 1)
    table.migrate()
    assert spark.sql(counts).first() == expected
    table.publish()
    assert spark.sql(counts).first() == expected
    own = spark.read.parquet(str(path))
    assert own.schema["lc"].dataType.simpleString() == "string collate UTF8_LCASE"
    assert (
        own.selectExpr("count(*)", "count_if(lc = 'ab')", "count_if(rt = 'a')", "count_if(un = 'ä')").first()
        == expected
    )


def test_types_that_the_files_contradict_count_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    said = spark.sql("SELECT CAST('a' AS STRING) COLLATE UTF8_LCASE AS n, 'a' COLLATE UTF8_LCASE AS s").schema.json()
    columns = pa.table({"n": pa.array([1, 2], pa.int64()), "s": ["a", "A"]})
    columns = columns.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": said})
    pq.write_table(columns, tmp_path / "part.parquet")
    found = ours(spark, tmp_path, use_index=True)
    assert [field.dataType.simpleString() for field in found.schema] == ["bigint", "string collate UTF8_LCASE"]
    assert found.where("s = 'A'").count() == 2
    # A collation of a later Spark.
    columns = columns.replace_schema_metadata(
        {"org.apache.spark.sql.parquet.row.metadata": said.replace("UTF8_LCASE", "UTF9_LCASE")}
    )
    pq.write_table(columns, tmp_path / "part.parquet")
    text = failure(lambda: ours(spark, tmp_path, use_index=True))
    assert "LakemarkException$Unsupported" in text
    assert "read it with the version that wrote it" in text


def test_delta_tables_with_collations_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"s": ["a", "A"]}), tmp_path / "part.parquet")
    field = {"name": "s", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "0",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": {},
            }
        },
        {
            "add": {
                "path": "part.parquet",
                "partitionValues": {},
                "size": (tmp_path / "part.parquet").stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
            }
        },
    ]
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    text = failure(lambda: ours(spark, tmp_path, use_index=True).count())
    assert "LakemarkException$Unsupported" in text
    assert "the column s of the Delta table" in text
    assert "has a collation" in text

"""CREATE INDEX and DROP INDEX in Spark's SQL, and the table of indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakemark
from spark_tables import ROWS_PER_FILE, add_file, is_counted, write_folder
from test_catalog import refusal, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "t", files=2)


def test_an_index_is_declared_and_built(spark: SparkSession, folder: Path) -> None:
    counted = spark.sql(f"SELECT * FROM lm.`{folder}` WHERE k > 7 AND k < 12")
    assert not is_counted(counted)
    spark.sql(f"CREATE INDEX by_k ON lm.`{folder}` USING bitmap (k) OPTIONS (encoding = 'interval-equality')")
    assert is_counted(spark.sql(f"SELECT * FROM lm.`{folder}` WHERE k > 7 AND k < 12"))
    (index,) = lakemark.Table(folder).indexes
    assert (index.name, index.kind, index.encoding, index.column) == ("by_k", "bitmap", "interval-equality", "k")
    assert (index.files_covered, index.rows) == (2, 2 * ROWS_PER_FILE)
    spark.sql(f"DROP INDEX by_k ON lm.`{folder}`")
    assert lakemark.Table(folder).indexes == []


def test_the_table_of_indexes_has_the_columns_of_our_own_sql(spark: SparkSession, folder: Path) -> None:
    session = lakemark.connect()
    session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{folder}'")
    shown = session.sql("SHOW INDEXES FROM t").to_arrow().column_names
    assert spark.sql(f"SELECT * FROM lm.`{folder}$indexes`").columns == shown


def test_the_table_of_indexes_says_what_the_shell_lists(spark: SparkSession, folder: Path) -> None:
    indexes = f"lm.`{folder}$indexes`"
    assert rows(spark, f"SELECT * FROM {indexes}") == []
    spark.sql(f"CREATE INDEX by_k ON lm.`{folder}` USING bitmap (k) OPTIONS (encoding = 'equality')")
    spark.sql(f"CREATE INDEX by_id ON lm.`{folder}` USING key (id)")
    add_file(folder, 2)
    assert spark.sql(f"SELECT * FROM {indexes}").columns == [
        *("name", "kind", "encoding", "chosen_by", "column", "data_type"),
        *("files_covered", "files_total", "coverage", "rows", "bytes", "predicted_bytes"),
    ]
    selected = "name, kind, encoding, chosen_by, column, data_type, files_covered, files_total, rows, bytes > 0"
    assert rows(spark, f"SELECT {selected} FROM {indexes} WHERE kind <> '' ORDER BY name") == [
        ("by_id", "key", "packed", "user", "id", "Int64", 2, 3, 2 * ROWS_PER_FILE, True),
        ("by_k", "bitmap", "equality", "user", "k", "Int32", 2, 3, 2 * ROWS_PER_FILE, True),
    ]


def test_without_a_kind_auto_chooses(spark: SparkSession, folder: Path) -> None:
    spark.sql(f"CREATE INDEX by_city ON lm.`{folder}` (city)")
    (index,) = lakemark.Table(folder).indexes
    assert (index.name, index.kind, index.chosen_by) == ("by_city", "bitmap", "auto")


def test_a_field_of_a_struct(spark: SparkSession, folder: Path) -> None:
    spark.sql(f"CREATE INDEX by_x ON lm.`{folder}` USING bitmap (place.x)")
    (index,) = lakemark.Table(folder).indexes
    assert (index.column, index.files_covered) == ("place.x", 2)


def test_an_index_over_several_columns(spark: SparkSession, folder: Path) -> None:
    plain = rows(spark, f"SELECT id, k FROM parquet.`{folder}` WHERE city IS NOT NULL AND k IN (7, 8) ORDER BY id")
    asked = f"SELECT id, k FROM lm.`{folder}` WHERE k IN (7, 8) AND city = 'CITY' ORDER BY id"
    city = rows(spark, f"SELECT city FROM parquet.`{folder}` WHERE k = 7 AND city IS NOT NULL")[0][0]
    expected = rows(spark, asked.replace("CITY", city).replace("lm.", "parquet."))
    assert 0 < len(expected) <= len(plain)
    spark.sql(f"CREATE INDEX by_both ON lm.`{folder}` USING key (city, k)")
    (index,) = lakemark.Table(folder).indexes
    assert (index.name, index.kind, index.columns, index.files_covered) == ("by_both", "key", ("city", "k"), 2)
    assert rows(spark, f"SELECT column, data_type FROM lm.`{folder}$indexes`")[0][0] == "city, k"
    found = spark.sql(asked.replace("CITY", city))
    assert [tuple(row) for row in found.collect()] == expected
    assert is_counted(spark.sql(f"SELECT * FROM lm.`{folder}` WHERE city = '{city}' AND k = 7"))


def test_columns_ride_along_under_the_names_of_the_table(spark: SparkSession, folder: Path) -> None:
    create = f"CREATE INDEX by_id ON lm.`{folder}` (id) OPTIONS (include = 'City, \"k\"')"
    spark.sql(create)
    (index,) = lakemark.Table(folder).indexes
    assert (index.kind, index.options["include"], index.files_covered) == ("key", "city,k", 2)
    spark.sql(f"DROP INDEX by_id ON lm.`{folder}`")
    assert "there is no column absent" in refusal(spark, create.replace("City", "absent"))
    assert "it must be names of columns with commas between" in refusal(spark, create.replace("City", ""))
    assert "is a column of the key" in refusal(spark, create.replace("City", "ID"))
    assert lakemark.Table(folder).indexes == []


def test_an_index_that_is_declared_only(spark: SparkSession, folder: Path) -> None:
    spark.sql(f"CREATE INDEX by_k ON lm.`{folder}` USING bitmap (k) OPTIONS (build = 'false')")
    (index,) = lakemark.Table(folder).indexes
    assert index.files_covered == 0


def test_if_exists_and_if_not_exists(spark: SparkSession, folder: Path) -> None:
    create, drop = f"CREATE INDEX {{}} by_k ON lm.`{folder}` USING bitmap (k)", f"DROP INDEX {{}} by_k ON lm.`{folder}`"
    assert "by_k" in refusal(spark, drop.format(""))
    spark.sql(drop.format("IF EXISTS"))
    spark.sql(create.format("IF NOT EXISTS"))
    spark.sql(create.format("IF NOT EXISTS"))
    text = refusal(spark, create.format(""))
    assert "INDEX_ALREADY_EXISTS" in text
    spark.sql(drop.format("IF EXISTS"))
    assert lakemark.Table(folder).indexes == []


def test_an_index_on_lists_leaves_the_rows_as_they_are(spark: SparkSession, folder: Path) -> None:
    plain = spark.read.parquet(str(folder))
    spark.sql(f"CREATE INDEX by_tag ON lm.`{folder}` USING bitmap (tags)")
    indexed = spark.table(f"lm.`{folder}`")
    for condition in (
        "tags IS NULL",
        "tags IS NOT NULL",
        "array_contains(tags, 't1')",
        "NOT array_contains(tags, 't1')",
        "tags IS NULL OR array_contains(tags, 't2')",
        "size(tags) = 2 AND k = 3",
    ):
        expected = [row.id for row in plain.where(condition).orderBy("id").select("id").collect()]
        assert [row.id for row in indexed.where(condition).orderBy("id").select("id").collect()] == expected
        assert indexed.where(condition).count() == len(expected)
    assert indexed.where("tags IS NULL").count() > 0
    grouped = indexed.groupBy("tags").count().orderBy("tags").collect()
    assert grouped == plain.groupBy("tags").count().orderBy("tags").collect()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("USING btree (k)", "there is no index kind btree; this release has auto, bitmap, key, bloom_tree, summary"),
        ("USING bitmap (k) OPTIONS (encodings = 'x')", "there is no option encodings; a bitmap index has encoding"),
        ("USING bitmap (k) OPTIONS (encoding = 'x')", "there is no encoding x; a bitmap index has one of"),
        ("USING bitmap (k, id)", "an index over several columns is of the kind key or links, and bitmap was asked for"),
        ("USING key (k, id, k)", "the column k stands in the index twice"),
        ("USING bitmap (place)", "no index kind has the type"),
        ("USING key (tags)", "tags has lists, whose elements have an index of the kind bitmap"),
        ("USING bitmap (absent)", "absent"),
        ("USING bitmap (k) OPTIONS (build = 'later')", "build is later, it must be true or false"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_shell(
    spark: SparkSession, folder: Path, statement: str, words: str
) -> None:
    assert words in refusal(spark, f"CREATE INDEX i ON lm.`{folder}` {statement}")
    assert lakemark.Table(folder).indexes == []

"""Names of Spark's own catalog are names of the connector's catalog, or refused where the table would be another."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

import lakemark
from spark_tables import create_indexes, plan_of, same_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

CITIES = ("Oslo", "Rom", "Wien")


@pytest.fixture
def trips(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """`own.trips`, a table of Parquet files in Spark's catalog, with an index."""
    folder = tmp_path / "trips"
    folder.mkdir()
    for part in range(2):
        ids = range(part * 300, part * 300 + 300)
        table = pa.table({"id": ids, "k": [n % 50 for n in ids], "city": [CITIES[n % 3] for n in ids]})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=100)
    create_indexes(folder, "k")
    spark.sql("CREATE DATABASE own")
    spark.sql(f"CREATE TABLE own.trips USING parquet LOCATION '{folder}'")
    yield folder
    spark.sql("DROP DATABASE own CASCADE")


def refused(spark: SparkSession, statement: str) -> str:
    with pytest.raises(Py4JJavaError) as caught:
        spark.sql(statement).collect()
    told = str(caught.value.java_exception.toString())
    assert "LakemarkException$Unsupported" in told
    return told


def test_a_parquet_table_is_read_by_its_name_with_its_indexes(spark: SparkSession, trips: Path) -> None:
    assert same_rows(spark.table("lm.own.trips"), spark.table("own.trips"))
    counted = spark.sql("SELECT count(*) FROM lm.own.trips WHERE k = 7")
    assert "LocalTableScan" in plan_of(counted)
    assert counted.collect() == [(12,)]
    spark.sql("CREATE INDEX by_city ON lm.own.trips USING bitmap (city)")
    assert {index.name for index in lakemark.Table(trips).indexes} == {"k_bitmap", "by_city"}
    for name in ("own.trips", "lm.own.trips", "spark_catalog.own.trips"):
        assert spark.sql(f"CALL lm.system.verify(table => '{name}')").count() == 2


def test_names_of_sparks_catalog_are_dropped_there(spark: SparkSession, trips: Path) -> None:
    assert "drop it there" in refused(spark, "DROP TABLE lm.own.trips")
    assert spark.table("own.trips").count() == 600
    assert trips.is_dir()
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("lm.own.absent")


def test_indexes_in_another_place_are_those_that_the_session_names(spark: SparkSession, trips: Path) -> None:
    shutil.rmtree(trips / "_lakemark")
    store = trips.parent / "store"
    lakemark.Table(trips, store=store).create_index("k", using="bitmap", progress=False)
    setting = f"spark.lakemark.store.{trips}"
    counted = "SELECT count(*) FROM lm.own.trips WHERE k = 7"
    assert "LocalTableScan" not in plan_of(spark.sql(counted))
    spark.conf.set(setting, str(store))
    try:
        assert "LocalTableScan" in plan_of(spark.sql(counted))
    finally:
        spark.conf.unset(setting)


def test_a_file_that_only_spark_would_read_is_refused(spark: SparkSession, trips: Path) -> None:
    shutil.copy(trips / "part-0.parquet", trips / "_hidden.parquet")
    assert spark.table("lm.own.trips").count() == 600
    shutil.copy(trips / "part-0.parquet", trips / "part-2")
    assert "no name that ends with .parquet" in refused(spark, "SELECT * FROM lm.own.trips")


def test_partitions_are_those_of_the_catalog(spark: SparkSession, trips: Path) -> None:
    place = trips.parent / "parts"
    spark.sql(f"CREATE TABLE own.parts (id BIGINT, city STRING) USING parquet PARTITIONED BY (city) LOCATION '{place}'")
    spark.sql("INSERT INTO own.parts SELECT id, city FROM own.trips")
    assert same_rows(spark.table("lm.own.parts"), spark.table("own.parts"))
    shutil.copytree(place / "city=Rom", place / "city=Bern")
    assert spark.table("own.parts").count() == 600
    assert "no partition for its file" in refused(spark, "SELECT * FROM lm.own.parts")
    spark.sql("ALTER TABLE own.parts RECOVER PARTITIONS")
    assert spark.table("lm.own.parts").count() == spark.table("own.parts").count() == 800
    spark.sql(f"ALTER TABLE own.parts ADD PARTITION (city = 'Linz') LOCATION '{trips.parent / 'linz'}'")
    assert "is not at" in refused(spark, "SELECT * FROM lm.own.parts")


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("(id BIGINT) USING parquet LOCATION '{}'", "1 columns and its files 3"),
        ("(id BIGINT, k BIGINT, town STRING) USING parquet LOCATION '{}'", "a column town string"),
        ("(id BIGINT, k INT, city STRING) USING parquet LOCATION '{}'", "a column k int where its files have k bigint"),
        ("USING orc AS SELECT 1 AS id", "of the format orc"),
    ],
)
def test_a_table_that_is_not_its_files_is_refused(
    spark: SparkSession, trips: Path, definition: str, words: str
) -> None:
    spark.sql(f"CREATE TABLE own.other {definition.format(trips)}")
    assert words in refused(spark, "SELECT * FROM lm.own.other")


def test_the_text_of_a_partition_that_is_a_number_is_refused(spark: SparkSession, trips: Path) -> None:
    place = trips.parent / "years"
    spark.sql(f"CREATE TABLE own.years (id BIGINT, year STRING) USING parquet PARTITIONED BY (year) LOCATION '{place}'")
    spark.sql("INSERT INTO own.years VALUES (1, '2024'), (2, '2025')")
    assert "a column year string where its files have year bigint" in refused(spark, "SELECT * FROM lm.own.years")


def test_numbers_of_partitions_may_be_narrower_in_the_catalog(spark: SparkSession, trips: Path) -> None:
    place = trips.parent / "years"
    spark.sql(f"CREATE TABLE own.years (id BIGINT, year INT) USING parquet PARTITIONED BY (year) LOCATION '{place}'")
    spark.sql("INSERT INTO own.years VALUES (1, 2024), (2, 2025)")
    assert same_rows(spark.table("lm.own.years"), spark.table("own.years"))
    assert spark.table("lm.own.years").where("year = 2024").collect() == [(1, 2024)]


def test_a_view_is_no_table(spark: SparkSession, trips: Path) -> None:
    assert trips.is_dir()
    spark.sql("CREATE VIEW own.seen AS SELECT 1 AS id")
    assert "of the format view" in refused(spark, "SELECT * FROM lm.own.seen")

"""The catalog: names of tables, namespaces, versions, and what it refuses."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

import lakemark
from spark_tables import (
    ROWS_PER_FILE,
    add_file,
    create_indexes,
    delete_by_vector,
    plan_of,
    same_rows,
    write_delta,
    write_folder,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def rows(spark: SparkSession, statement: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def refusal(spark: SparkSession, statement: str) -> str:
    """The text of the error, with the Java class that caused it."""
    with pytest.raises(Exception, match=r"\S") as caught:
        spark.sql(statement).collect()
    error = caught.value
    return str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)


@pytest.fixture(scope="module")
def table(warehouse: Path, spark: SparkSession) -> Path:  # noqa: ARG001 - the session's catalog has the folder
    """`lm.air.flights`, indexed, with an empty namespace beside it."""
    (warehouse / "empty").mkdir()
    folder = write_folder(warehouse / "air" / "flights")
    create_indexes(folder, "k")
    return folder


def test_tables_are_folders_of_the_warehouse_and_namespaces_are_the_others(spark: SparkSession, table: Path) -> None:
    assert {("air",), ("empty",), ("far",)} <= set(rows(spark, "SHOW NAMESPACES IN lm"))
    assert rows(spark, "SHOW NAMESPACES IN lm.air") == []
    assert [(row[0], row[1]) for row in rows(spark, "SHOW TABLES IN lm.air")] == [("air", "flights")]
    assert rows(spark, "SHOW TABLES IN lm.empty") == []
    ours = spark.table("lm.air.flights")
    assert same_rows(ours.drop("tags", "place"), spark.read.parquet(str(table)).drop("tags", "place"))
    assert rows(spark, "SELECT count(*) FROM lm.air.flights WHERE k = 7") == [(89,)]


def test_a_path_is_a_name(spark: SparkSession, table: Path) -> None:
    assert rows(spark, f"SELECT count(*) FROM lm.`{table}`") == [(3 * ROWS_PER_FILE,)]
    assert rows(spark, f"SELECT count(*) FROM bare.`{table}/part-1.parquet`") == [(ROWS_PER_FILE,)]
    assert "LakemarkException$NotFound" in refusal(spark, f"SELECT * FROM lm.`{table}/absent`")


def test_a_name_of_the_configuration(spark: SparkSession, warehouse: Path) -> None:
    write_folder(warehouse.parent / "trips", files=1)
    assert rows(spark, "SELECT count(*) FROM lm.far.trips") == [(ROWS_PER_FILE,)]
    assert [row[1] for row in rows(spark, "SHOW TABLES IN lm.far")] == ["trips"]
    assert "gone" in refusal(spark, "SELECT * FROM lm.gone")
    assert "remove it there" in refusal(spark, "DROP TABLE lm.far.trips")


def test_names_that_nothing_has(spark: SparkSession) -> None:
    assert "TABLE_OR_VIEW_NOT_FOUND" in refusal(spark, "SELECT * FROM lm.air.absent")
    assert "SCHEMA_NOT_FOUND" in refusal(spark, "SHOW TABLES IN lm.absent")
    assert "TABLE_OR_VIEW_NOT_FOUND" in refusal(spark, "SELECT * FROM lm.air.`_lakemark`")
    assert "without slashes" in refusal(spark, "SELECT * FROM lm.`..`.t")


def test_a_description_says_where_the_data_are(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    described = {row[0]: row[1] for row in rows(spark, "DESCRIBE TABLE EXTENDED lm.air.flights")}
    assert described["id"] == "bigint"
    assert described["price"] == "decimal(10,2)"
    assert described["Provider"] == "lakemark"
    assert described["Location"] == str(table)
    write_delta(tmp_path / "delta")
    described_rows = rows(spark, f"DESCRIBE TABLE lm.`{tmp_path / 'delta'}`")
    partitions = [
        row[0] for row in described_rows[[row[0] for row in described_rows].index("# Partition Information") :]
    ]
    assert "year" in partitions


def test_create_table_names_data_elsewhere_and_drop_forgets_the_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", files=1)
    store = tmp_path / "store"
    lakemark.Table(folder, store=store).create_index("k", using="bitmap", progress=False)
    spark.sql(f"CREATE TABLE lm.air.named USING lakemark OPTIONS (store = '{store}') LOCATION '{folder}'")
    assert rows(spark, "SELECT count(*) FROM lm.air.named") == [(ROWS_PER_FILE,)]
    assert "LocalTableScan" in plan_of(spark.sql("SELECT count(*) FROM lm.air.named WHERE k = 7"))
    assert "named" in [row[1] for row in rows(spark, "SHOW TABLES IN lm.air")]
    assert "ALREADY_EXISTS" in refusal(spark, f"CREATE TABLE lm.air.named USING lakemark LOCATION '{folder}'")
    spark.sql(f"CREATE TABLE IF NOT EXISTS lm.air.named USING lakemark LOCATION '{folder}'")
    spark.sql("DROP TABLE lm.air.named")
    assert "named" not in [row[1] for row in rows(spark, "SHOW TABLES IN lm.air")]
    assert (folder / "part-0.parquet").is_file()
    assert store.is_dir()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TABLE lm.air.x USING lakemark", "add LOCATION"),
        ("CREATE TABLE lm.air.x USING parquet LOCATION '{}'", "USING lakemark"),
        ("CREATE TABLE lm.air.x (id BIGINT) USING lakemark LOCATION '{}'", "leave columns and partitions out"),
        ("CREATE TABLE bare.x USING lakemark LOCATION '{}'", "spark.sql.catalog.bare.warehouse"),
        ("CREATE TABLE lm.absent.x USING lakemark LOCATION '{}'", "SCHEMA_NOT_FOUND"),
        ("CREATE TABLE lm.air.x USING lakemark LOCATION '{}/absent'", "absent"),
        ("DROP TABLE lm.air.flights", "data are never removed"),
        ("DROP TABLE lm.`{}`", "data are never removed"),
        ("ALTER TABLE lm.air.flights SET TBLPROPERTIES ('a' = 'b')", "cannot be altered"),
        ("ALTER TABLE lm.air.flights RENAME TO lm.air.f", "cannot be renamed"),
        ("DROP NAMESPACE lm.air", "NOT_EMPTY"),
        ("DROP NAMESPACE lm.air CASCADE", "would remove data"),
    ],
)
def test_what_is_refused_says_what_to_do(spark: SparkSession, table: Path, statement: str, words: str) -> None:
    assert words in refusal(spark, statement.format(table))
    assert rows(spark, "SELECT count(*) FROM lm.air.flights") == [(3 * ROWS_PER_FILE,)]


def test_namespaces_are_made_and_removed_while_empty(spark: SparkSession, warehouse: Path) -> None:
    spark.sql("CREATE NAMESPACE lm.sea")
    assert (warehouse / "sea").is_dir()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lm.sea")
    spark.sql("DROP NAMESPACE lm.sea")
    assert not (warehouse / "sea").exists()


def test_an_older_version(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    write_delta(folder)
    delete_by_vector(folder, 2023, [1, 2, 3, 4])
    assert rows(spark, f"SELECT count(*) FROM lm.`{folder}`") == [(246,)]
    assert rows(spark, f"SELECT count(*) FROM lm.`{folder}` VERSION AS OF 1") == [(250,)]
    assert rows(spark, f"SELECT count(*) FROM lm.`{folder}` VERSION AS OF 0") == [(100,)]
    assert spark.read.option("versionAsOf", 0).table(f"lm.`{folder}`").count() == 100
    assert "whole number" in refusal(spark, f"SELECT * FROM lm.`{folder}` VERSION AS OF 'first'")


def test_the_version_of_a_moment(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    write_delta(folder)
    second, first = (version.time for version in lakemark.Table(folder).history())
    just, day = timedelta(microseconds=1), timedelta(days=1)

    def count(moment: datetime) -> str:
        return f"SELECT count(*) FROM lm.`{folder}` TIMESTAMP AS OF '{moment:%Y-%m-%d %H:%M:%S.%f}'"

    found = {moment: rows(spark, count(moment)) for moment in (first, second - just, second, second + day)}
    assert list(found.values()) == [[(100,)], [(100,)], [(250,)], [(250,)]]
    read = spark.read.option("timestampAsOf", f"{first:%Y-%m-%d %H:%M:%S.%f}")
    assert read.table(f"lm.`{folder}`").count() == 100
    told = refusal(spark, count(first - just))
    assert "SnapshotExpired" in told
    assert "the oldest that can be read is 0 of" in told


def test_indexes_are_switched_off_for_a_query(spark: SparkSession, table: Path) -> None:
    counted = "SELECT count(*) FROM lm.`{}` {} WHERE k = 7"
    assert "LocalTableScan" in plan_of(spark.sql(counted.format(table, "")))
    off = spark.sql(counted.format(table, "WITH (use_index = 'false')"))
    assert "LocalTableScan" not in plan_of(off)
    assert off.collect() == [(89,)]


def test_queries_go_by_an_earlier_listing_for_as_long_as_they_are_told(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    counted = f"SELECT count(*) FROM lm.`{folder}` {{}}"
    stale = "WITH (max_staleness = '1h')"
    read = spark.read.format("lakemark").option("max_staleness", "1h")
    for _ in range(2):
        assert rows(spark, counted.format(stale)) == [(1000,)]
        assert read.load(str(folder)).count() == 1000
        add_file(folder, 1)
    assert rows(spark, counted.format("")) == [(2000,)]
    told = refusal(spark, counted.format("WITH (max_staleness = 'soon')"))
    assert "InvalidInput" in told
    assert "give a number with ms, s, m or h" in told


def test_a_table_of_the_session_catalog(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    create_indexes(folder, "k")
    spark.sql(f"CREATE TABLE session_trips USING lakemark LOCATION '{folder}'")
    try:
        assert rows(spark, "SELECT count(*) FROM session_trips WHERE k = 7") == [(89,)]
        spark.sql("CREATE INDEX by_city ON session_trips USING bitmap (city)")
        assert {index.name for index in lakemark.Table(folder).indexes} == {"k_bitmap", "by_city"}
        add_file(folder, 1)
        assert rows(spark, "SELECT count(*) FROM session_trips") == [(2 * ROWS_PER_FILE,)]
    finally:
        spark.sql("DROP TABLE session_trips")
    assert (folder / "part-0.parquet").is_file()


def test_the_optimizer_learns_of_columns_from_the_indexes(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    create_indexes(folder, "k", "city")

    def statistics() -> str:
        frame = spark.sql(f"SELECT k, city, id FROM lm.`{folder}` WHERE k < 5")
        scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()  # noqa: SLF001 - PySpark has no other way
        return str(scan.stats().attributeStats().toString())

    assert statistics() == "Map()"
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        known = statistics()
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")
    assert "ColumnStat(Some(5),Some(0),Some(4),Some(0)" in known
    assert "ColumnStat(Some(4),None,None,Some(" in known


def test_the_optimizer_learns_how_large_the_columns_are_that_are_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k")

    def size(columns: str, condition: str = "id >= 0") -> int:
        frame = spark.sql(f"SELECT {columns} FROM lm.`{folder}` WHERE {condition}")
        scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()  # noqa: SLF001 - PySpark has no other way
        return int(str(scan.stats().sizeInBytes()))

    files = sum(file.stat().st_size for file in folder.glob("*.parquet"))
    assert size("*") == pytest.approx(files, rel=0.01)
    # An INT of 4 bytes and a BIGINT of 8, and 8 for a row, as Spark counts.
    table = spark.table(f"lm.`{folder}`")
    whole = 8 + table._jdf.schema().defaultSize()  # noqa: SLF001 - as above
    assert size("k, id") == pytest.approx(files * 20 / whole, rel=0.01)
    assert size("k, id", "k = 7") == pytest.approx(files * 20 / whole * 89 / (2 * ROWS_PER_FILE), rel=0.05)

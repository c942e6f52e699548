"""Rows, types and columns are those of Spark's own Parquet reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

import lakemark
from spark_tables import add_file, create_indexes, plan_of, same_rows, settings, write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

INDEXED = ("id", "k", "city", "price", "day", "at", "paid")


@pytest.fixture(scope="module", params=["unindexed", "indexed", "half-indexed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("read") / "t", files=2)
    if request.param != "unindexed":
        create_indexes(folder, *INDEXED)
    add_file(folder, 2)
    if request.param == "indexed":
        create_indexes(folder)
    return folder


def test_schema_and_rows_are_those_of_sparks_own_reader(spark: SparkSession, folder: Path) -> None:
    ours = spark.read.format("lakemark").load(str(folder))
    theirs = spark.read.parquet(str(folder))
    assert ours.schema == theirs.schema
    assert ours.count() == 3000
    assert same_rows(ours, theirs)


def test_only_the_asked_columns_are_read_in_the_asked_order(spark: SparkSession, folder: Path) -> None:
    ours = spark.read.format("lakemark").load(str(folder)).select("city", "id")
    assert ours.orderBy("id").limit(3).collect() == [(None, 0), ("Rom", 1), ("Wien", 2)]
    scan = next(line for line in plan_of(ours).splitlines() if "BatchScan" in line)
    assert "city" in scan
    assert "amount" not in scan


def test_no_column_at_all_still_counts(spark: SparkSession, folder: Path) -> None:
    ours = spark.read.format("lakemark").option("use_index", "false").load(str(folder))
    assert len(ours.selectExpr("1 AS one").collect()) == 3000
    assert ours.where("k IS NULL").count() == 334


def test_a_field_of_a_struct_can_be_asked_for(spark: SparkSession, folder: Path) -> None:
    ours = spark.read.format("lakemark").load(str(folder)).where("id = 12").select("place.seen", "tags")
    assert ours.collect() == [(True, ["t0", None])]


def test_sql_reads_a_view_of_the_table(spark: SparkSession, folder: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING lakemark OPTIONS (path '{folder}')")
    assert spark.sql("SELECT sum(id), count(city) FROM v WHERE k = 7").collect() == [(66_733, 75)]


def test_equal_parts_of_a_query_are_computed_once(spark: SparkSession, folder: Path) -> None:
    spark.read.format("lakemark").load(str(folder)).createOrReplaceTempView("ours")
    spark.read.parquet(str(folder)).createOrReplaceTempView("theirs")

    def joined(table: str, least: int) -> DataFrame:
        one, other = (
            f"(SELECT city, max(amount * id) AS most FROM {table} WHERE k > {bound} GROUP BY city)"
            for bound in (3, least)
        )
        return spark.sql(f"SELECT a.city, a.most, b.most FROM {one} a JOIN {other} b ON a.city = b.city")

    # Keys that are handed to the other side are an exchange that is used twice, too.
    with settings(spark, adaptive_enabled="false", optimizer_dynamicPartitionPruning_enabled="false"):
        for least, is_reused in ((3, True), (4, False)):
            ours, theirs = joined("ours", least), joined("theirs", least)
            assert ("ReusedExchange" in plan_of(ours)) == ("ReusedExchange" in plan_of(theirs)) == is_reused
            assert same_rows(ours, theirs)


def test_a_glob_with_a_store_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=3)
    reader = spark.read.format("lakemark").option("store", str(tmp_path / "store"))
    assert reader.load(f"{folder}/part-[01].parquet").count() == 2000


def test_types_that_spark_lacks_arrive_as_sparks_reader_maps_them(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(
        pa.table(
            {
                "u8": pa.array([255, None], pa.uint8()),
                "u16": pa.array([65535, None], pa.uint16()),
                "u32": pa.array([4294967295, None], pa.uint32()),
                "u64": pa.array([18446744073709551615, None], pa.uint64()),
                "fixed": pa.array([b"abc", None], pa.binary(3)),
                "dictionary": pa.array(["x", None]).dictionary_encode(),
                "large": pa.array(["y", None], pa.large_string()),
                "seconds": pa.array([0, None], pa.timestamp("ms")),
            }
        ),
        tmp_path / "a.parquet",
    )
    ours = spark.read.format("lakemark").load(str(tmp_path))
    theirs = spark.read.parquet(str(tmp_path))
    assert ours.schema == theirs.schema
    assert [field.dataType for field in ours.schema][:4] == [
        t.ShortType(),
        t.IntegerType(),
        t.LongType(),
        t.DecimalType(20, 0),
    ]
    assert same_rows(ours, theirs)


def test_timestamps_of_96_bits_are_moments_of_utc(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    moments = spark.sql(
        "SELECT * FROM VALUES (TIMESTAMP '2024-03-31 01:30:00.123456'), (TIMESTAMP '9999-12-31') AS v(at)"
    )
    moments.write.option("compression", "none").parquet(folder)
    ours = spark.read.format("lakemark").load(folder)
    theirs = spark.read.parquet(folder)
    assert ours.schema == theirs.schema
    assert same_rows(ours, theirs)
    table = lakemark.Table(folder)
    index = table.create_index("at", progress=False)
    assert (index.data_type, index.coverage) == ('Timestamp(µs, "UTC")', 1.0)
    indexed = spark.read.format("lakemark").load(folder)
    for condition in ("at = TIMESTAMP '9999-12-31'", "at < TIMESTAMP '2024-03-31 01:30:00.123457'"):
        assert indexed.where(condition).count() == 1
        assert same_rows(indexed.where(condition), theirs.where(condition))


def test_timestamps_that_spark_rebased_are_not_indexed(spark: SparkSession, tmp_path: Path) -> None:
    moments = spark.sql("SELECT * FROM VALUES (TIMESTAMP '2024-03-31 01:30:00', DATE '2024-03-31') AS v(at, day)")
    for kind, declined in (("int96", ["at"]), ("datetime", ["day"])):
        folder = str(tmp_path / kind)
        key = f"spark.sql.parquet.{kind}RebaseModeInWrite"
        spark.conf.set(key, "LEGACY")
        moments.coalesce(1).write.parquet(folder)
        spark.conf.unset(key)
        table = lakemark.Table(folder)
        for column in ("at", "day"):
            table.create_index(column, build=False)
        report = table.build(progress=False)
        assert [index.column for index in table.indexes if index.coverage == 0.0] == declined
        assert len(report.declined) == 1
        assert same_rows(spark.read.format("lakemark").load(folder), spark.read.parquet(folder))


def test_a_file_without_a_column_gives_nulls(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [3]}), tmp_path / "2.parquet")
    for step in ("unindexed", "indexed"):
        if step == "indexed":
            create_indexes(tmp_path, "a", "b")
        ours = spark.read.format("lakemark").load(str(tmp_path))
        assert sorted(ours.collect()) == [(1, "x"), (2, "y"), (3, None)], step
        assert ours.where("b IS NULL").collect() == [(3, None)], step
        assert ours.where("b <> 'x'").collect() == [(2, "y")], step


def test_partition_folders_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    for year, name in ((2023, "A b"), (2024, None)):
        value = "__HIVE_DEFAULT_PARTITION__" if name is None else name.replace(" ", "%20")
        folder = tmp_path / f"year={year}" / f"name={value}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [year, year + 1]}), folder / "a.parquet")
    for step in ("unindexed", "indexed"):
        if step == "indexed":
            create_indexes(tmp_path, "id")
        ours = spark.read.format("lakemark").load(str(tmp_path))
        found = sorted(ours.select("id", "name").collect(), key=str)
        assert found == [(2023, "A b"), (2024, "A b"), (2024, None), (2025, None)], step
        assert [row.id for row in ours.where("year = 2023").select("id").orderBy("id").collect()] == [2023, 2024], step
        assert ours.where("name IS NULL AND id = 2024").count() == 1, step
        assert ours.where("year = 2024").select("year").distinct().count() == 1, step

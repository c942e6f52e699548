"""Existing Spark code over columns, fields, folders and tables as Spark names them: the same rows with indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import lakemark
from file_scans import collected, read_of, settings, skipped
from scattered import GROUP_ROWS, scattered, write_scattered
from spark_tables import create_indexes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_names_are_sensitive_to_case_if_spark_is(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"k": range(1000), "K": range(1000, 0, -1)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    create_indexes(tmp_path, "k", "K")
    with settings((spark, fast), {"spark.sql.caseSensitive": "true"}):
        for condition in ("k = 5", "K = 5", "k = 5 AND K = 995"):
            ours, theirs = (session.read.parquet(str(tmp_path)).where(condition) for session in (fast, spark))
            assert collected(ours) == collected(theirs)
    for session in (fast, spark):
        with pytest.raises(Exception, match=r"AMBIGUOUS|COLUMN_ALREADY_EXISTS"):
            session.read.parquet(str(tmp_path)).where("k = 5").collect()


def test_fields_of_structs(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    values = [
        None if n % 13 == 0 else {"x": n // 100, "in": None if n % 5 == 0 else {"s": f"v{n % 50}"}} for n in range(1000)
    ]
    of = pa.struct([("x", pa.int32()), ("in", pa.struct([("s", pa.string())]))])
    pq.write_table(pa.table({"place": pa.array(values, of)}), tmp_path / "a.parquet", row_group_size=100)
    create_indexes(tmp_path, "place.x", "place.in.s")
    for condition in (
        "place.x = 7",
        "place.X > 7",
        "place.in.s = 'v3'",
        "place.in.s IS NULL",
        "place.x = 2 OR place IS NULL",
    ):
        ours, theirs = (session.read.parquet(str(tmp_path)).where(condition) for session in (fast, spark))
        assert collected(ours) == collected(theirs), condition
    with settings((fast,), {"spark.sql.parquet.filterPushdown": "false"}):
        ours = fast.read.parquet(str(tmp_path)).where("place.x = 7")
        assert len(collected(ours)) == sum(n // 100 == 7 and n % 13 != 0 for n in range(1000))
        assert read_of(ours) == (100, 1)


def test_a_schema_of_the_users_own(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_scattered(tmp_path / "t")
    create_indexes(folder, "k", "name")
    for schema, condition in (
        ("ID BIGINT, K BIGINT", "k = 1237"),
        ("id BIGINT, K BIGINT", "K IS NOT NULL"),
        ("k BIGINT, lacking STRING", "lacking IS NULL AND k = 5"),
        ("k BIGINT, lacking STRING", "lacking = 'x'"),
        ("k DECIMAL(20, 0)", "k = 1237"),
    ):
        ours, theirs = (session.read.schema(schema).parquet(str(folder)).where(condition) for session in (fast, spark))
        try:
            expected = collected(theirs)
        except Exception:  # noqa: BLE001 - Spark refuses to read a column as some types, and must go on to
            with pytest.raises(Exception, match=r"(?i)convert|parquet"):
                ours.collect()
        else:
            assert collected(ours) == expected


def test_unusual_names_of_columns_and_folders(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    for part, name in enumerate(("plain", "a b", "Zürich", "50%", "x'y", "a:b")):
        table = scattered(part).rename_columns(["id", "a.b", "größe (m)", "part"])
        frame = spark.createDataFrame(table.to_pandas()).coalesce(1).withColumn("ort", F.lit(name))
        frame.write.mode("append").option("parquet.enable.dictionary", "false").partitionBy("ort").parquet(
            str(tmp_path / "t ä")
        )
    create_indexes(tmp_path / "t ä", "a.b", "größe (m)")
    for condition in (
        "`a.b` = 1237",
        "`größe (m)` = 'n01237'",
        "`a.b` < 5 AND ort = 'a b'",
        "ort = '50%' OR `a.b` = 7",
    ):
        ours, theirs = (session.read.parquet(str(tmp_path / "t ä")).where(condition) for session in (fast, spark))
        assert collected(ours) == collected(theirs), condition
        assert collected(ours) or "ort" in condition
    lookup = fast.read.parquet(str(tmp_path / "t ä")).where("`a.b` = 1237")
    assert lookup.count() == 2
    assert skipped(lookup) == (4, 6)


def test_partitioned_folders(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    for part in range(4):
        folder = tmp_path / f"year={2020 + part}" / f"zone={'ab'[part % 2]}"
        folder.mkdir(parents=True)
        pq.write_table(scattered(part % 3), folder / "x.parquet", row_group_size=GROUP_ROWS, use_dictionary=False)
    create_indexes(tmp_path, "k")
    paths = [str(tmp_path), f"{tmp_path}/year=2021", f"{tmp_path}/*/zone=a", f"{tmp_path}/year=2020/zone=a/x.parquet"]
    for path in paths:
        for condition in ("k = 1237", "k < 3", "k > 10 AND k < 2"):
            ours, theirs = (session.read.parquet(path).where(condition) for session in (fast, spark))
            assert collected(ours) == collected(theirs)
            assert skipped(ours) is not None, path
    for condition in ("year = 2021 AND k = 5", "zone = 'b' OR k = 1237", "year > 2022"):
        ours, theirs = (session.read.parquet(str(tmp_path)).where(condition) for session in (fast, spark))
        assert collected(ours) == collected(theirs)
    together = fast.read.option("basePath", str(tmp_path)).parquet(f"{tmp_path}/year=2020", f"{tmp_path}/year=2023")
    assert skipped(together.where("k = 1237")) is not None
    assert together.where("k = 1237").select("year").distinct().count() == 2


def test_tables_of_the_session_catalog(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_scattered(tmp_path / "t")
    create_indexes(folder, "k")
    try:
        spark.sql(f"CREATE TABLE external USING parquet LOCATION '{folder}'")
        spark.sql(f"CREATE TABLE managed USING parquet AS SELECT * FROM parquet.`{folder}`")
        spark.sql(
            "CREATE TABLE parted (id BIGINT, k BIGINT, name STRING, part BIGINT) USING parquet PARTITIONED BY (part)"
        )
        spark.sql(f"INSERT INTO parted SELECT * FROM parquet.`{folder}`")
        spark.sql(
            "CREATE TABLE buckets USING parquet CLUSTERED BY (k) SORTED BY (k) INTO 3 BUCKETS"
            f" AS SELECT * FROM parquet.`{folder}`"
        )
        for name in ("managed", "parted", "buckets"):
            (location,) = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").collect()
            index_at(location.data_type, "k")
        for name in ("external", "managed", "parted", "buckets"):
            for query in (
                f"SELECT * FROM {name} WHERE k = 1237",
                f"SELECT part, count(*) FROM {name} WHERE k < 20 GROUP BY part",
                f"SELECT * FROM {name} WHERE part = 2 AND k IN (1, 2, 3)",
            ):
                ours, theirs = fast.sql(query), spark.sql(query)
                assert collected(ours) == collected(theirs)
                assert skipped(ours) is not None or "k = 1237" not in query, query
        # Vanilla rows, and nothing unknown is skipped.
        fast.sql("INSERT INTO parted VALUES (9001, 1237, 'late', 7), (9002, 1237, 'late', 0)")
        assert fast.sql("SELECT id FROM parted WHERE k = 1237 ORDER BY id").collect() == [(1,), (9001,), (9002,)]
        fast.sql("ALTER TABLE parted DROP PARTITION (part = 0)")
        assert fast.sql("SELECT id FROM parted WHERE k = 1237").collect() == [(9001,)]
    finally:
        for name in ("external", "managed", "parted", "buckets"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def index_at(location: str, *columns: str) -> None:
    table = lakemark.Table(location)
    for column in columns:
        table.create_index(column, using="bitmap", build=False)
    table.build(progress=False)


def test_defaults_of_columns_that_files_lack(spark: SparkSession, fast: SparkSession) -> None:
    try:
        spark.sql("CREATE TABLE defaults (k INT) USING parquet")
        spark.sql("INSERT INTO defaults SELECT id FROM range(1000)")
        (location,) = spark.sql("DESCRIBE TABLE EXTENDED defaults").where("col_name = 'Location'").collect()
        index_at(location.data_type, "k")
        spark.sql("ALTER TABLE defaults ADD COLUMNS (v INT DEFAULT 42)")
        spark.sql("INSERT INTO defaults SELECT id, id FROM range(40, 45)")
        index_at(location.data_type, "v")
        for condition in ("v = 42", "v IS NULL", "v IS NOT NULL AND k = 5", "k = 44"):
            query = f"SELECT * FROM defaults WHERE {condition}"
            assert collected(fast.sql(query)) == collected(spark.sql(query)), condition
        assert fast.sql("SELECT * FROM defaults WHERE v = 42").count() == 1001
    finally:
        spark.sql("DROP TABLE IF EXISTS defaults")

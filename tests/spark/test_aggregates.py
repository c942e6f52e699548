"""Aggregates that the indexes know are there before anything runs, and are those of Spark without indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_tables import add_file, create_indexes, delete_by_vector, plan_of, same_rows, write_delta, write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

INDEXED = ("id", "k", "tiny", "city", "price", "day", "at", "local", "paid", "blob")

ANSWERED = (
    "SELECT min(k), max(k), count(k), count(*) FROM {t}",
    "SELECT min(city), max(day), min(at), max(local), min(price), max(paid), min(id), max(id) FROM {t}",
    "SELECT sum(k), sum(tiny), sum(price), sum(id) FROM {t}",
    "SELECT avg(k), avg(tiny), count(DISTINCT city), count(DISTINCT k) FROM {t}",
    "SELECT avg(price) FROM {t} WHERE k < 20",
    "SELECT sum(k), min(city), count(*) FROM {t} WHERE paid AND k IN (3, 4, 17)",
    "SELECT sum(k), min(k), count(k), count(DISTINCT k), count(*) FROM {t} WHERE k = 77",
    "SELECT count(*), sum(tiny) FROM {t} WHERE city IS NULL",
    "SELECT city, count(*) FROM {t} GROUP BY city",
    "SELECT k, count(*) FROM {t} WHERE city = 'Rom' GROUP BY k",
    "SELECT paid, count(*), count(city), min(city), max(city), count(DISTINCT city) FROM {t} GROUP BY paid",
    "SELECT city, sum(tiny), avg(tiny) FROM {t} WHERE k BETWEEN 2 AND 11 GROUP BY city",
    "SELECT city, paid, count(*) FROM {t} GROUP BY city, paid",
    "SELECT paid, sum(price), avg(price) FROM {t} GROUP BY paid",
    "SELECT DISTINCT city FROM {t}",
    "SELECT blob, count(*) FROM {t} GROUP BY blob",
    "SELECT city, count(*) FROM {t} WHERE k = 77 GROUP BY city",
    "SELECT city, max(day) FROM {t} WHERE k = 77 GROUP BY city",
    "SELECT city, min(local), max(at) FROM {t} WHERE k = 77 GROUP BY city",
    "SELECT city, min(blob) FROM {t} WHERE k = 77 GROUP BY city",
    "SELECT k, avg(k), sum(k) FROM {t} GROUP BY k",
    "SELECT price, avg(price) FROM {t} GROUP BY price",
    "SELECT city, count(*) AS n FROM {t} GROUP BY city HAVING count(*) > 700 ORDER BY n, city",
)

# Not known, not exact, or not asked of sources by Spark at all.
LEFT = (
    "SELECT sum(amount), max(ratio) FROM {t}",
    "SELECT short, count(*) FROM {t} GROUP BY short",
    "SELECT sum(k) FROM {t} WHERE amount > 3",
    "SELECT k % 3, count(*) FROM {t} GROUP BY k % 3",
    "SELECT city, paid, day, count(*) FROM {t} GROUP BY city, paid, day",
    "SELECT sum(DISTINCT k), count(DISTINCT city) FROM {t}",
    "SELECT count(*) FILTER (WHERE k > 3), sum(k) FROM {t}",
    "SELECT bit_xor(k) FROM {t}",
    # More pairs of values than rows: reading them is cheaper.
    "SELECT day, sum(price) FROM {t} WHERE city = 'Wien' GROUP BY day",
)


def is_answered(frame: DataFrame) -> bool:
    plan = plan_of(frame)
    return "LocalTableScan" in plan and "BatchScan" not in plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("aggregates") / "t")
    create_indexes(folder, *INDEXED)
    return folder


def both(spark: SparkSession, folder: Path, sql: str) -> tuple[DataFrame, DataFrame]:
    """The statement over our table and over Spark's own."""
    spark.read.format("lakemark").load(str(folder)).createOrReplaceTempView("ours")
    spark.read.parquet(str(folder)).createOrReplaceTempView("theirs")
    return spark.sql(sql.format(t="ours")), spark.sql(sql.format(t="theirs"))


@pytest.mark.parametrize("sql", ANSWERED)
def test_aggregates_come_from_the_indexes(spark: SparkSession, folder: Path, sql: str) -> None:
    ours, theirs = both(spark, folder, sql)
    assert is_answered(ours), plan_of(ours)
    assert ours.dtypes == theirs.dtypes
    assert same_rows(ours, theirs)


@pytest.mark.parametrize("sql", LEFT)
def test_other_aggregates_stay_with_spark(spark: SparkSession, folder: Path, sql: str) -> None:
    ours, theirs = both(spark, folder, sql)
    assert not is_answered(ours)
    assert same_rows(ours, theirs)


def test_values_are_those_that_were_written(spark: SparkSession, folder: Path) -> None:
    ours, _ = both(spark, folder, "SELECT city, count(*), sum(k), max(id) FROM {t} WHERE city > 'R' GROUP BY city")
    expected = {}
    for n in range(3000):
        city = None if n % 7 == 0 else ("Oslo", "Rom", "Wien", "Zürich")[n % 4]
        if city is not None and city > "R":
            count, total, last = expected.get(city, (0, 0, 0))
            expected[city] = (count + 1, total + (n // 100 if n % 9 else 0), max(last, n))
    assert {row[0]: tuple(row[1:]) for row in ours.collect()} == expected


def test_a_file_without_indexes_leaves_all_of_it_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k", "city")
    sql = "SELECT city, count(*), sum(k) FROM {t} GROUP BY city"
    assert is_answered(both(spark, folder, sql)[0])
    add_file(folder, 2)
    ours, theirs = both(spark, folder, sql)
    assert not is_answered(ours)
    assert same_rows(ours, theirs)


def test_deleted_rows_are_not_in_aggregates(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    write_delta(folder)
    create_indexes(folder, "kind", "id")
    delete_by_vector(folder, 2023, [0, 3, 5, 77])
    ours = spark.read.format("lakemark").load(str(folder))
    ours.createOrReplaceTempView("ours")
    kinds = spark.sql("SELECT kind, count(*), sum(id) FROM ours GROUP BY kind ORDER BY kind")
    expected = []
    for kind in range(5):
        ids = [n for n in range(250) if n % 5 == kind and n not in (0, 3, 5, 77)]
        expected.append((f"k{kind}", len(ids), sum(ids)))
    assert kinds.collect() == expected
    years = spark.sql("SELECT year, count(*), min(id) FROM ours GROUP BY year ORDER BY year")
    assert years.collect() == [(2023, 96, 1), (2024, 150, 100)]
    assert is_answered(spark.sql("SELECT year, count(*) FROM ours GROUP BY year"))


def test_a_sum_that_is_too_large_fails_as_sparks_own_does(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"big": pa.array([2**63 - 1] * 4, pa.int64())}), folder / "big.parquet")
    create_indexes(folder, "big")
    ours, theirs = both(spark, folder, "SELECT sum(big) FROM {t}")
    failures = []
    for frame in (ours, theirs):
        with pytest.raises(Exception, match=r"(?i)overflow") as failure:
            frame.collect()
        failures.append(type(failure.value))
    assert failures[0] is failures[1]
    assert both(spark, folder, "SELECT max(big), count(*) FROM {t}")[0].collect() == [(2**63 - 1, 4)]


def test_a_declared_type_is_never_answered_by_values_of_another(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"k": pa.array([2, 10], pa.int32())}), folder / "k.parquet")
    create_indexes(folder, "k")
    declared = spark.read.format("lakemark").schema("k STRING").load(str(folder))
    with pytest.raises(Exception, match="load the table again"):
        declared.selectExpr("min(k)").collect()
    with pytest.raises(Exception, match="load the table again"):
        declared.groupBy("k").count().collect()
    assert spark.read.format("lakemark").load(str(folder)).selectExpr("min(k)").collect() == [(2,)]


def test_the_option_switches_answers_off(spark: SparkSession, folder: Path) -> None:
    off = spark.read.format("lakemark").option("use_index", "false").load(str(folder))
    assert not is_answered(off.groupBy("city").count())

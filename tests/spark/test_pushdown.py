"""What the indexes answer is not evaluated again by Spark, and what they cannot answer is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from spark_tables import add_file, create_indexes, has_filter, is_counted, plan_of, same_rows, settings, write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

INDEXED = ("id", "k", "city", "price", "day", "at", "paid")

# Answered for every row by the indexes above.
CERTAIN = (
    "k = 7",
    "7 = k",
    "k <> 7",
    "k < 3",
    "k >= 28 OR k IS NULL",
    "k BETWEEN 3 AND 5",
    "k IN (1, 2, 29, 77)",
    "k NOT IN (1, 2, 29)",
    "k <=> 4",
    "NOT (k = 4 AND city = 'Rom')",
    "NOT (k <=> 4)",
    "city LIKE 'Z%'",
    "city LIKE 'Zü%' AND k > 4",
    "city NOT LIKE 'Z%'",
    "city = 'Zürich'",
    "city IS NULL",
    "city IS NOT NULL AND city > 'Rom'",
    "price = 1.25",
    "price > 4.5",
    "day = DATE '2024-02-29'",
    "day >= DATE '2024-03-01' AND day < DATE '2024-03-05'",
    "at = TIMESTAMP '2024-01-01 01:00:00'",
    "paid",
    "NOT paid",
    "paid IS NULL",
    "(k = 1 AND city = 'Rom') OR (k = 2 AND NOT (city = 'Oslo' OR paid))",
    "id = 12345",
    "k = 1 AND k = 2",
)

# Spark has at least one condition left.
RESIDUAL = (
    "amount = 9.25",
    "amount > 100 AND k = 7",
    "k = 7 OR amount > 200",
    "k = 7 OR (k = 8 AND amount > 200)",
    "k + 1 = 8",
    "city LIKE '%ich'",
    "length(city) = 3 AND k < 9",
    "tiny = 5",
    "k = 7 AND tiny > 0",
    "id % 100 = 3",
    "place.x = 700",
    "array_contains(tags, 't1')",
    "ratio < 12.5",
    "local > TIMESTAMP_NTZ '2024-01-01 05:00:00'",
    # Spark cannot name such a filter, which it does with those that a source takes.
    "blob IN (X'00ff', NULL)",
    "(blob NOT IN (X'00ff', NULL)) IS NULL",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("pushdown") / "t")
    create_indexes(folder, *INDEXED)
    return folder


@pytest.fixture
def ours(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("lakemark").load(str(folder))


def row_groups_skipped(frame: DataFrame) -> tuple[int, int]:
    found = re.search(r"row groups skipped: (\d+) of (\d+)", plan_of(frame))
    assert found is not None, plan_of(frame)
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("condition", CERTAIN)
def test_a_certain_filter_is_taken_off_spark(
    spark: SparkSession, folder: Path, ours: DataFrame, condition: str
) -> None:
    frame = ours.where(condition)
    assert not has_filter(frame)
    assert is_counted(frame)
    expected = spark.read.parquet(str(folder)).where(condition)
    assert frame.count() == expected.count()
    assert same_rows(frame, expected)


@pytest.mark.parametrize("condition", RESIDUAL)
def test_another_filter_is_evaluated_by_spark(
    spark: SparkSession, folder: Path, ours: DataFrame, condition: str
) -> None:
    frame = ours.where(condition)
    assert has_filter(frame)
    assert not is_counted(frame)
    assert same_rows(frame, spark.read.parquet(str(folder)).where(condition))


def test_a_known_part_of_a_conjunction_narrows_what_is_read(ours: DataFrame) -> None:
    assert row_groups_skipped(ours.where("k = 7 AND amount > 100")) == (29, 30)
    assert row_groups_skipped(ours.where("k = 7 OR amount > 100")) == (0, 30)


def test_a_count_reads_no_data(ours: DataFrame) -> None:
    frame = ours.where("k IN (3, 4) AND city = 'Rom'").selectExpr("count(*)", "count(1)")
    plan = plan_of(frame)
    assert "LocalTableScan" in plan
    assert "BatchScan" not in plan
    assert frame.collect() == [(38, 38)]
    assert is_counted(ours)
    assert ours.count() == 3000


def test_a_count_that_is_not_certain_is_a_scan(ours: DataFrame) -> None:
    frame = ours.where("k = 3 AND amount > 100")
    assert not is_counted(frame)
    assert frame.count() == len(frame.collect()) > 0


def test_a_limit_plans_only_the_splits_that_it_needs(spark: SparkSession, ours: DataFrame) -> None:
    with settings(spark, files_maxPartitionBytes="1MB"):
        whole = ours.where("k IN (3, 13, 23)")
        assert "splits: 3," in plan_of(whole)
        assert "splits: 1," in plan_of(whole.limit(5))
        assert len(whole.limit(5).collect()) == 5
        assert len(whole.limit(5000).collect()) == whole.count() == 267


def test_a_limit_after_a_filter_of_sparks_own_plans_all_splits(ours: DataFrame) -> None:
    frame = ours.where("amount < 0.5").limit(2)
    assert len(frame.collect()) == 2
    assert ours.where("amount < 0").limit(2).collect() == []


def test_joins_and_sorts_over_two_scans_of_one_table(spark: SparkSession, folder: Path, ours: DataFrame) -> None:
    theirs = spark.read.parquet(str(folder))

    def joined(source: DataFrame) -> DataFrame:
        left = source.where("k = 3").select("id", "city")
        right = source.where("price < 3.5").selectExpr("id", "price AS p")
        return left.join(right, "id").orderBy("id")

    assert joined(ours).collect() == joined(theirs).collect()
    assert joined(ours).count() > 0


def test_the_option_switches_indexes_off(spark: SparkSession, folder: Path) -> None:
    off = spark.read.format("lakemark").option("use_index", "false").load(str(folder)).where("k = 7")
    assert has_filter(off)
    assert off.count() == 89


def test_a_file_added_after_the_build_is_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k", "city")
    chosen = spark.read.format("lakemark").load(str(folder)).where("k = 25 OR k = 3")
    assert is_counted(chosen)
    assert chosen.count() == 89
    add_file(folder, 2)
    chosen = spark.read.format("lakemark").load(str(folder)).where("k = 25 OR k = 3")
    assert not is_counted(chosen)
    assert chosen.count() == spark.read.parquet(str(folder)).where("k = 25 OR k = 3").count() == 178
    create_indexes(folder)
    assert is_counted(chosen.where("true"))
    assert chosen.where("true").count() == 178


def test_a_file_that_changed_is_read_as_it_is_now(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k")
    (folder / "part-1.parquet").unlink()
    add_file(folder, 5)
    (folder / "part-5.parquet").rename(folder / "part-1.parquet")
    ours = spark.read.format("lakemark").load(str(folder))
    assert (ours.where("k = 15").count(), ours.where("k = 55").count()) == (0, 89)


def test_damaged_indexes_change_no_row(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k", "city")
    segments = sorted((folder / "_lakemark").rglob("*.lmx"))
    assert segments
    for path in segments:
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 0x40
        path.write_bytes(content)
    ours = spark.read.format("lakemark").load(str(folder))
    theirs = spark.read.parquet(str(folder))
    for condition in ("k = 7", "city = 'Rom' AND k < 5", "k IS NULL"):
        assert same_rows(ours.where(condition), theirs.where(condition))
        assert ours.where(condition).count() == theirs.where(condition).count()


def test_metrics_reach_spark(ours: DataFrame) -> None:
    frame = ours.where("k = 7")
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()  # noqa: SLF001 - plans are reached no other way
    frame.collect()
    names = scan.metrics().keySet().mkString(",")
    assert "rowGroupsSkipped" in names
    assert "rowsExact" in names

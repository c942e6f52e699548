"""`lakemark.spark.explain` tells what a query reads, and does not run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakemark
import lakemark.spark
from lakemark.exceptions import UnsupportedError
from spark_tables import add_file, create_indexes, plan_of, rows, write_folder
from test_runtime_filters import dimension

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of ten row groups; one came after the indexes."""
    folder = write_folder(tmp_path_factory.mktemp("explain") / "t", files=2)
    create_indexes(folder, "k", "city")
    add_file(folder, 2)
    return folder


@pytest.fixture
def ours(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("lakemark").load(str(folder))


def jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_a_scan_tells_files_row_groups_indexes_and_filters(spark: SparkSession, folder: Path, ours: DataFrame) -> None:
    before = jobs(spark)
    report = lakemark.spark.explain(ours.where("k = 7 AND amount > 100").select("id"))
    assert jobs(spark) == before
    (scan,) = report.scans
    assert scan.table == f"lakemark {folder}"
    assert scan.filters_pushed == ["k IS NOT NULL", "amount IS NOT NULL", "k = 7"]
    assert [text for text in scan.filters_left if "amount" in text] == ["(amount IS NOT NULL)", "(amount > 100.0D)"]
    assert scan.index_report is not None
    indexes = scan.index_report
    assert (indexes.files_total, indexes.files_pruned, indexes.files_scanned) == (3, 1, 1)
    assert (indexes.row_groups_total, indexes.row_groups_pruned) == (20, 19)
    leaf = next(leaf for leaf in indexes.leaves if leaf.column == "k")
    assert (leaf.index, leaf.encoding, leaf.reason) == ("k_bitmap", "equality", "file_not_covered")
    assert (scan.rows, scan.splits, scan.rows_buffered, scan.limit) == (1089, 2, 0, None)
    assert scan.to_dict()["index_report"]["files_total"] == 3
    drawn = str(report)
    assert drawn.startswith(f"scan of lakemark {folder}\n")
    assert "  row groups ██░░" in drawn
    assert "1 read, 19 skipped" in drawn
    assert "(amount > 100.0D)" in drawn
    assert "index k_bitmap (equality)" in drawn
    assert "file_not_covered" in drawn
    html = report._repr_html_()
    assert html.count("<svg") == 3
    assert "filters that Spark tests" in html


def test_bytes_are_those_of_the_columns_that_are_read(ours: DataFrame) -> None:
    (whole,) = lakemark.spark.explain(ours.where("k = 7")).scans
    (one,) = lakemark.spark.explain(ours.where("k = 7").select("id")).scans
    assert whole.rows == one.rows
    # 14 columns, by their types.
    assert whole.bytes / 20 < one.bytes < whole.bytes / 8


def test_what_the_indexes_answer_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t")
    create_indexes(folder, "k", "city")
    counted = spark.read.format("lakemark").load(str(folder)).where("k = 7").groupBy("city").count()
    (scan,) = lakemark.spark.explain(counted).scans
    assert scan.aggregates == ["city", "COUNT(*)"]
    assert (scan.rows, scan.splits, scan.bytes, scan.index_report) == (5, 0, 0, None)
    drawn = str(scan)
    assert "index-only:" in drawn
    assert "none: the answer has 5" in drawn


def test_joins_name_the_keys_before_and_after_they_are_known(
    spark: SparkSession, ours: DataFrame, tmp_path: Path
) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 13], pa.int32()))
    joined = ours.join(dim, "k").join(ours.where("k = 5").selectExpr("id AS other"), ours.id == 500, "left")
    first, second = lakemark.spark.explain(joined).scans
    assert (first.runtime_columns, first.runtime_filters) == (["k"], [])
    assert first.index_report is not None
    assert first.index_report.row_groups_pruned == 0
    assert "k = 5" in second.filters_pushed
    joined.collect()
    first, _ = lakemark.spark.explain(joined).scans
    assert first.runtime_filters == ["k IN (3, 13)"]
    assert first.index_report is not None
    assert first.index_report.row_groups_pruned == 18
    assert "keys from a join:" in str(first)


def test_subqueries_and_cached_frames_are_looked_into(spark: SparkSession, ours: DataFrame) -> None:
    ours.createOrReplaceTempView("explained")
    frame = spark.sql("SELECT id FROM explained WHERE k = 3 AND id > (SELECT max(id) FROM explained WHERE amount < 0)")
    outer, inner = lakemark.spark.explain(frame).scans
    assert "k = 3" in outer.filters_pushed
    assert any("amount" in text for text in inner.filters_left)
    cached = ours.where("k = 4").cache()
    try:
        (scan,) = lakemark.spark.explain(cached.where("id > 0")).scans
        assert "k = 4" in scan.filters_pushed
    finally:
        cached.unpersist()


def test_buffered_rows_and_limits_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t")
    create_indexes(folder, "k")
    lakemark.Table(folder, key="id").upsert(rows(5000, 5020))
    frame = spark.read.format("lakemark").load(str(folder)).where("k >= 0").limit(3)
    (scan,) = lakemark.spark.explain(frame).scans
    assert (scan.limit, scan.rows_buffered) == (3, 18)
    assert "18 of them buffered" in str(scan)


def test_without_a_scan_of_ours_it_says_what_to_do(spark: SparkSession, folder: Path) -> None:
    for frame in (spark.range(3), spark.read.parquet(str(folder))):
        report = lakemark.spark.explain(frame)
        assert report.scans == []
        assert 'spark.read.format("lakemark").load(path)' in str(report)
        assert "lakemark" in report._repr_html_()


def test_a_session_without_plans_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Spark Connect"):
        lakemark.spark.explain(object())  # type: ignore[arg-type]


def test_sparks_own_explain_tells_the_same_in_a_line(ours: DataFrame) -> None:
    line = plan_of(ours.where("k = 7 AND amount > 100"))
    assert "row groups skipped: 19 of 20" in line
    assert "files skipped: 1 of 3" in line
    assert "k by k_bitmap (file_not_covered)" in line
    assert "amount: " in line
    assert "index bytes: " in line

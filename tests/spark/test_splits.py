"""What one task reads: rows of many small files, or a part of a large one, by the settings of Spark's own scans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from spark_tables import create_indexes, plan_of, same_rows, settings
from test_errors import failure

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FILES, ROWS = 60, 400


@pytest.fixture(params=["unindexed", "indexed", "half-indexed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """60 files of two row groups in three partitions; a value of k is in a tenth of the rows of one file in four."""
    folder = tmp_path / "t"
    for part in range(FILES):
        ids = range(part * ROWS, (part + 1) * ROWS)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "k": pa.array([n % 10 if part % 4 == 0 else None for n in ids], pa.int32()),
                "text": [f"{n % 97}" for n in ids],
            }
        )
        (folder / f"p={part % 3}").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"p={part % 3}" / f"part-{part:02}.parquet", row_group_size=ROWS // 2)
        if part == FILES // 2 and request.param == "half-indexed":
            create_indexes(folder, "k", "id")
    if request.param == "indexed":
        create_indexes(folder, "k", "id")
    return folder


def ours(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("lakemark").load(str(folder))


def tasks(frame: DataFrame) -> int:
    """How many tasks read a frame, planned with the settings of now."""
    return frame.where("true").rdd.getNumPartitions()


def test_small_files_share_tasks_and_give_all_their_rows(spark: SparkSession, folder: Path) -> None:
    frame, theirs = ours(spark, folder), spark.read.parquet(str(folder))
    # An opening counts 4 MB: 240 MB for two cores are two splits of 120, and Spark's own scan has as many.
    assert (tasks(frame), tasks(theirs)) == (2, 2)
    for condition in ("true", "k = 3", "id % 1000 = 7", "id BETWEEN 7000 AND 9000", "p = 1 AND k > 7", "k < 0"):
        assert same_rows(frame.where(condition), theirs.where(condition)), condition
    assert same_rows(frame.groupBy("p").count(), theirs.groupBy("p").count())
    assert len(frame.where("k IS NOT NULL").limit(5000).collect()) == 5000
    assert len(frame.selectExpr("1 AS one").collect()) == FILES * ROWS


def test_splits_are_as_large_as_the_settings_of_spark_say(spark: SparkSession, folder: Path) -> None:
    frame = ours(spark, folder)
    with settings(spark, files_maxPartitionBytes="16MB"):
        assert 15 <= tasks(frame) <= 20
        assert same_rows(frame, spark.read.parquet(str(folder)))
    with settings(spark, files_maxPartitionBytes="1MB"):
        assert tasks(frame) == FILES
        # Two row groups of one file are read by one task, and files without such a row by none.
        indexes = lakemark.Table(folder).indexes
        covered = round(FILES * indexes[0].coverage) if indexes else 0
        asked = [part for part in range(FILES) if part >= covered or part % 4 == 0]
        assert tasks(frame.where("k = 3")) == len(asked)
    with settings(spark, files_openCostInBytes="0"):
        assert tasks(frame) == 1
    spark.conf.set("spark.sql.files.minPartitionNum", "6")
    try:
        assert tasks(frame) == 6
    finally:
        spark.conf.unset("spark.sql.files.minPartitionNum")


def test_changes_go_with_the_rows_of_files(spark: SparkSession, folder: Path) -> None:
    table = lakemark.Table(folder, key="id")
    table.upsert(pa.table({"id": pa.array([3, 90_000], pa.int64()), "k": [77, 78], "text": ["new"] * 2, "p": [0, 1]}))
    table.delete([5])
    frame = ours(spark, folder)
    assert tasks(frame) == 2
    assert frame.count() == FILES * ROWS
    assert sorted(frame.where("k > 70").select("id", "p").collect()) == [(3, 0), (90_000, 1)]
    table.flush()
    assert sorted(ours(spark, folder).where("k > 70").select("id", "p").collect()) == [(3, 0), (90_000, 1)]
    assert sorted(row.id for row in ours(spark, folder).where("id < 8").collect()) == [0, 1, 2, 3, 4, 6, 7]


def test_a_file_that_is_gone_fails_in_the_middle_of_a_split(spark: SparkSession, folder: Path) -> None:
    frame = ours(spark, folder).select("id")
    assert "splits: 2," in plan_of(frame)
    gone = folder / "p=1" / "part-07.parquet"
    gone.unlink()
    assert "part-07.parquet" in failure(frame.collect)

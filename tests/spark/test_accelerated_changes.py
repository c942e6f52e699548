"""Existing Spark code after files, indexes or buffered changes came, went or broke: the rows of Spark."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from file_scans import collected, logged, read_of, settings, skipped, without_numbers
from scattered import FILE_ROWS, GROUP_ROWS, GROUPS, scattered
from spark_tables import add_file, create_indexes, delete_by_vector, rows, write_delta, write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_files_that_came_after_the_build_are_read(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "id", "k")
    add_file(folder, 2)
    fast.range(5000, 5003).selectExpr("id", "7 AS k").write.mode("append").parquet(str(folder))
    ours, theirs = (session.read.parquet(str(folder)).where("k = 7 OR id = 2500") for session in (fast, spark))
    assert collected(ours) == collected(theirs)
    assert {row.id for row in ours.collect()} >= {2500, 5000, 5001, 5002}
    assert skipped(ours) is not None


def test_a_file_that_was_replaced_or_touched_since_spark_listed_it(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "id")
    before = fast.read.parquet(str(folder))
    path = folder / "part-0.parquet"
    times = path.stat()
    # Another time: what Spark listed is no file that the indexes know now, so that it is read whole.
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 5_000_000))
    frame = before.where("id = 17 OR id = 1017")
    assert {row.id for row in frame.collect()} == {17, 1017}
    assert skipped(frame) == (18, 20)
    with settings((fast,), {"spark.sql.parquet.filterPushdown": "false"}):
        lookup = before.where("id = 1017")
        assert [row.id for row in lookup.collect()] == [1017]
        assert read_of(lookup) == (FILE_ROWS + 100, 2)
    # Other rows in as many bytes.
    table = pq.read_table(path)
    shuffled = table.take(pa.array(list(range(999, -1, -1))))
    pq.write_table(shuffled, path, row_group_size=100, write_page_index=True)
    for condition in ("id = 17", "id < 5", "id = 1017"):
        ours, theirs = (session.read.parquet(str(folder)).where(condition) for session in (fast, spark))
        assert collected(ours) == collected(theirs) != []


def test_a_file_that_is_replaced_after_planning_is_read_whole(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    """The new file has as many bytes, row groups and rows, so that only its time tells."""
    folder = tmp_path / "t"
    folder.mkdir()
    path, table = folder / "part.parquet", scattered(0)

    def write(rows: pa.Table) -> os.stat_result:
        plain = {"use_dictionary": False, "compression": "none"}
        pq.write_table(rows, path, row_group_size=GROUP_ROWS, **plain)
        return path.stat()

    listed = write(table)
    create_indexes(folder, "k")
    # Row 1 is in the first row group now, and in the last one later.
    planned = fast.read.parquet(str(folder)).where("k = 1237")
    assert skipped(planned) == (GROUPS - 1, GROUPS)
    replaced = write(table.take(pa.array(range(FILE_ROWS - 1, -1, -1))))
    assert replaced.st_size == listed.st_size
    os.utime(path, ns=(listed.st_atime_ns, listed.st_mtime_ns + 5_000_000))
    assert collected(planned) == ["Row(id=1, k=1237, name='n01237', part=0)"]
    theirs = spark.read.parquet(str(folder)).where("k = 1237")
    assert collected(theirs) == collected(planned)


@pytest.mark.parametrize("harm", ["segments", "manifest", "no indexes", "no index"])
def test_damaged_indexes_cost_time_only(spark: SparkSession, fast: SparkSession, tmp_path: Path, harm: str) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    if harm != "no index":
        create_indexes(folder, "id")
    store = folder / "_lakemark"
    if harm == "segments":
        for path in (store / "indexes").iterdir():
            path.write_bytes(path.read_bytes()[:-9] + b"\0" * 9)
    elif harm == "manifest":
        for path in (store / "manifest").iterdir():
            path.write_bytes(b"nothing")
    elif harm == "no indexes":
        shutil.rmtree(store / "indexes")
    ours, theirs = (session.read.parquet(str(folder)).where("id = 1234") for session in (fast, spark))
    assert collected(ours) == collected(theirs) != []
    assert skipped(ours) is None


def test_buffered_changes_are_not_seen_and_told_of_once(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "id", "k", "city")
    table = lakemark.Table(folder, key="id")
    table.delete([17])
    table.update([{"id": 18, "city": "Bergen", "k": 5}])
    table.insert(rows(7000, 7001))
    session = fast.newSession()
    session.conf.set("spark.lakemark.use_index", "true")
    with logged(spark) as lines:
        for flushed in (False, True):
            for condition in ("id = 17", "id = 18", "city = 'Bergen'", "id = 7000", "k = 0", "true"):
                ours, theirs = (one.read.parquet(str(folder)).where(condition) for one in (session, spark))
                assert collected(ours) == collected(theirs), condition
            if not flushed:
                table.flush()
        assert session.read.parquet(str(folder)).where("id = 17").count() == 1
        told = [line for line in lines() if "buffered changes" in line]
    assert len(told) == 1
    assert str(folder) in told[0]
    assert "CALL lm.system.migrate" in told[0]
    assert skipped(session.read.parquet(str(folder)).where("id = 17")) == (19, 20)


def test_a_scan_without_a_filter_tells_of_buffered_changes_too(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    lakemark.Table(folder, key="id").delete([17])
    with logged(spark) as lines:
        assert fast.read.parquet(str(folder)).count() == 1000
    assert sum("buffered changes" in line for line in lines()) == 1


def test_a_folder_that_was_migrated_and_not_published(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=3)
    create_indexes(folder, "id", "city")
    table = lakemark.Table(folder, key="id")
    table.update([{"id": 17, "city": "Bergen"}, {"id": 1500, "city": "Bergen"}])
    table.delete([18])
    table.migrate(progress=False)
    table.build(progress=False)
    conditions = ("id = 17", "id = 18", "id = 2500", "city = 'Bergen'", "city IS NULL", "true")
    with logged(spark) as lines:
        for condition in conditions:
            ours, theirs = (one.read.parquet(str(folder)).where(condition) for one in (fast, spark))
            assert collected(ours) == collected(theirs), condition
    assert [sum(word in line for line in lines()) for word in ("not published", "buffered changes")] == [1, 0]
    assert fast.read.parquet(str(folder)).where("id = 18").count() == 1
    assert skipped(fast.read.parquet(str(folder)).where("id = 2500")) is not None
    table.publish()
    for condition in conditions:
        ours, theirs = (one.read.parquet(str(folder)).where(condition) for one in (fast, spark))
        assert collected(ours) == collected(theirs), condition
    assert fast.read.parquet(str(folder)).where("id = 18").count() == 0


def test_a_delta_table_is_left_alone(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    write_delta(tmp_path / "t")
    create_indexes(tmp_path / "t", "id")
    delete_by_vector(tmp_path / "t", 2023, [3, 5])
    ours, theirs = (session.read.parquet(str(tmp_path / "t")).where("id = 3") for session in (fast, spark))
    # Plain Parquet knows nothing of deleted rows.
    assert collected(ours) == collected(theirs) == ["Row(id=3, kind='k3', year=2023)"]
    assert without_numbers(ours) == without_numbers(theirs)

"""An index that includes the columns gives rows with their values: those of the data files, which no task opens."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
import lakemark.spark
from spark_tables import delete_by_vector, plan_of, same_rows, write_delta
from test_runtime_filters import dimension, scans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000
KEYS = 1_000


def links(start: int, stop: int) -> pa.Table:
    """Links from a thousand subjects in no order; `weight` is in no index."""
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "s": pa.array([n * 7 % KEYS for n in ids], pa.int64()),
            "p": [("is_a", "likes", None)[n % 3] for n in ids],
            "o": pa.array([None if n % 11 == 0 else n % 97 for n in ids], pa.int32()),
            "weight": [n / 4 for n in ids],
        }
    )


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Two files of ten row groups, four rows for each subject."""
    folder = tmp_path / "links"
    folder.mkdir()
    for part in range(2):
        rows = links(part * ROWS, (part + 1) * ROWS)
        pq.write_table(rows, folder / f"part-{part}.parquet", row_group_size=200, write_page_index=True)
    # To Spark names that differ in case are the same.
    spark.sql(f"CREATE INDEX by_s ON lm.`{folder}` USING key (s) OPTIONS (include = 'P, o')")
    (index,) = lakemark.Table(folder).indexes
    assert (index.kind, index.columns, index.options["include"]) == ("key", ("s",), "p,o")
    return folder


@pytest.fixture
def ours(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("lakemark").load(str(folder))


def index_only(frame: DataFrame, table: Path) -> tuple[int, int]:
    """Rows that an index gave, and all rows that the scan of the table gave; the frame has been collected."""
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - plans are reached no other way
    (scan,) = (scan for scan in scans(plan) if f"lakemark {table} " in scan.scan().description())  # type: ignore[attr-defined]
    metrics = scan.metrics()  # type: ignore[attr-defined]
    return metrics.apply("rowsIndexOnly").value(), metrics.apply("numOutputRows").value()


@contextmanager
def without_files(folder: Path) -> Iterator[None]:
    """Takes the data files away for a while: a task that opens one fails."""
    files = sorted(folder.glob("*.parquet"))
    assert files
    for file in files:
        file.rename(file.with_suffix(".away"))
    try:
        yield
    finally:
        for file in files:
            file.with_suffix(".away").rename(file)


def values(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize(
    ("condition", "columns", "given"),
    [
        ("s = 7", "s, p, o", 4),
        ("s IN (1, 2, 5000)", "o", 8),
        ("s BETWEEN 10 AND 12", "p, s", 12),
        ("s > 10 AND s < 13 AND s IS NOT NULL", "o, o + 1 AS more", 8),
        # Spark tests what no index answers, of the values that it gets.
        ("s = 7 AND p = 'is_a'", "o", 4),
        ("s IN (7, 8) AND o IS NULL", "p", 8),
        ("s = 7 AND length(p) > 4", "s", 4),
        # One column is in the data alone.
        ("s = 7", "s, weight", 0),
        ("s = 7 AND weight > 0", "s", 0),
        # These are no lookups.
        ("s >= 0", "o", 0),
        ("p = 'is_a'", "s", 0),
    ],
)
def test_rows_of_few_keys_come_from_the_index(
    spark: SparkSession, folder: Path, condition: str, columns: str, given: int
) -> None:
    theirs, found = (
        spark.read.format(kind).load(str(folder)).where(condition).selectExpr(*columns.split(", "))
        for kind in ("parquet", "lakemark")
    )
    assert values(found) == values(theirs) != []
    read = index_only(found, folder)
    assert read == (given, given) if given else (read[0] == 0 < read[1])


def test_no_task_opens_a_data_file(spark: SparkSession, folder: Path, ours: DataFrame) -> None:
    expected = values(spark.read.parquet(str(folder)).where("s = 7").select("p", "o"))
    covered, other = ours.where("s = 7").select("p", "o"), ours.where("s = 7").select("p", "weight")
    line = plan_of(covered)
    assert "row groups skipped: 20 of 20" in line
    assert "index-only rows: 4 by by_s" in line
    assert "index-only" not in plan_of(other)
    with without_files(folder):
        assert values(covered) == expected
        with pytest.raises(Exception, match="is not there"):
            other.collect()


def test_a_report_names_the_rows_and_the_index(ours: DataFrame) -> None:
    (scan,) = lakemark.spark.explain(ours.where("s = 7").select("p", "o")).scans
    assert (scan.rows, scan.rows_index_only, scan.covering_index) == (4, 4, "by_s")
    assert "4 by by_s" in str(scan)
    (scan,) = lakemark.spark.explain(ours.where("s = 7")).scans
    assert (scan.rows, scan.rows_index_only, scan.covering_index) == (4, 0, None)
    assert "index-only rows" not in str(scan)


@pytest.mark.parametrize("condition", ["true", "p = 'is_a'", "o > 50 OR o IS NULL"])
def test_links_of_the_keys_of_a_join_come_from_the_index(
    spark: SparkSession, folder: Path, ours: DataFrame, tmp_path: Path, condition: str
) -> None:
    starts = dimension(spark, tmp_path / "d", s=pa.array([7, 500, 99_999, None], pa.int64())).select("s")
    theirs = spark.read.parquet(str(folder)).where(condition).join(starts, "s").select("s", "p", "o")
    expected = values(theirs)
    assert 0 < len(expected) <= 8
    joined = ours.where(condition).join(starts, "s").select("s", "p", "o")
    assert "dynamicpruning" in plan_of(joined)
    with without_files(folder):
        assert values(joined) == expected
    assert index_only(joined, folder) == (8, 8)


def test_a_join_that_wants_another_column_reads_the_rows_of_its_keys(
    spark: SparkSession, folder: Path, ours: DataFrame, tmp_path: Path
) -> None:
    starts = dimension(spark, tmp_path / "d", s=pa.array([7, 500], pa.int64())).select("s")
    joined = ours.join(starts, "s")
    assert len(joined.collect()) == 8
    assert index_only(joined, folder) == (0, 8)
    assert same_rows(joined, spark.read.parquet(str(folder)).join(starts, "s"))


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "in a run"])
def test_buffered_changes_and_new_files_are_honoured(
    spark: SparkSession, folder: Path, ours: DataFrame, tmp_path: Path, flushed: bool
) -> None:
    table = lakemark.Table(folder, key="id")
    # The rows of the subject 7 are 1, 1001, 2001 and 3001, those of 14 are 2 and so on.
    table.delete(pa.table({"id": pa.array([1001], pa.int64())}))
    table.update([{"id": 2001, "o": 96}])
    table.update([{"id": 2, "s": 7}])
    table.upsert(links(5_001, 5_002).set_column(1, "s", pa.array([7], pa.int64())))
    if flushed:
        table.flush()
    pq.write_table(links(8_000, 8_400), folder / "part-2.parquet")
    pq.write_table(pa.table(table.scan()), tmp_path / "expected.parquet")
    theirs = spark.read.parquet(str(tmp_path / "expected.parquet"))
    found = ours.where("s = 7").select("id", "p", "o")
    assert values(found) == values(theirs.where("s = 7").select("id", "p", "o"))
    found = ours.where("s = 7").select("p", "o")
    assert values(found) == values(theirs.where("s = 7").select("p", "o"))
    # The index has the rows 1 and 3001, and nothing of the third file, in which Spark looks at every row.
    assert index_only(found, folder)[0] == 2
    starts = dimension(spark, tmp_path / "d", s=pa.array([7, 14], pa.int64())).select("s")
    joined = ours.join(starts, "s").select("s", "p", "o")
    assert values(joined) == values(theirs.join(starts, "s").select("s", "p", "o"))
    assert index_only(joined, folder)[0] == 2 + 3


def test_rows_of_a_deletion_vector_stay_hidden(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_delta(folder)
    delete_by_vector(folder, 2023, [0, 3, 5, 77])
    lakemark.Table(folder).create_index("id", using="key", include=["kind"], progress=False)
    found = spark.read.format("lakemark").load(str(folder)).where("id IN (0, 1, 3, 200)").select("id", "kind")
    assert values(found) == [(1, "k1"), (200, "k0")]
    assert index_only(found, folder) == (2, 2)


def test_a_change_of_rows_that_an_index_has_writes_them_whole(spark: SparkSession, folder: Path) -> None:
    lakemark.Table(folder, key="id")
    others = "s, p, o, weight"
    spark.sql(f"CREATE INDEX by_id ON lm.`{folder}` USING key (id) OPTIONS (include = '{others}')")
    before = {row.id: tuple(row) for row in spark.read.parquet(str(folder)).where("id IN (5, 6)").collect()}
    spark.sql(f"UPDATE lm.`{folder}` SET o = 11 WHERE id = 5")
    after = {row.id: tuple(row) for row in spark.table(f"lm.`{folder}`").where("id IN (5, 6)").collect()}
    assert after == {5: (*before[5][:3], 11, before[5][4]), 6: before[6]}

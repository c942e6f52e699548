"""Changes that are buffered beside a Delta table: queries by the table's name see them, or are refused."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakemark
from delta_tables import ALL_ROWS, data, write_delta
from file_scans import collected, scans, settings
from spark_tables import create_indexes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = ("id", "k", "name", "day", "price")
CONDITIONS = (
    "id = 17",
    "id = 18",
    "k = 29",
    "name = 'changed'",
    "k IS NULL",
    "k < 50 AND id > 100",
    "id >= 7000",
    "true",
)
QUERIES = (
    "SELECT count(*) FROM {t}",
    "SELECT count(*), min(id), max(id) FROM {t}",
    "SELECT count(*) FROM {t} WHERE name = 'changed'",
    "SELECT name, count(*) FROM {t} WHERE id < 30 OR id > 6000 GROUP BY name",
    "SELECT count(*) FROM {t} WHERE id IN (SELECT id FROM {t} WHERE name = 'changed')",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE b.name = 'changed' AND a.k IS NOT NULL",
    "SELECT id FROM {t} ORDER BY id DESC LIMIT 3",
    "WITH few AS (SELECT * FROM {t} WHERE id > 2990) SELECT count(*) FROM few",
)


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """A folder with a name in Spark's catalog: a row is deleted, one is updated and two are inserted."""
    name = request.node.name.removeprefix("test_")
    folder = write_delta(spark, tmp_path / "t", name, COLUMNS)
    create_indexes(folder, "k", "name")
    table = lakemark.Table(folder, key="id")
    table.delete([17])
    table.update([{"id": 18, "name": "changed"}])
    new = data(0).select(COLUMNS).slice(0, 2)
    new = new.set_column(0, "id", pa.array([7000, 7001], pa.int64()))
    table.insert(new.set_column(1, "k", pa.array([29, None], pa.int32())).set_column(2, "name", [["changed", "new"]]))
    return folder, f"own.{name}"


def test_queries_see_what_is_buffered_and_then_what_was_compacted(
    spark: SparkSession, fast: SparkSession, changed: tuple[Path, str]
) -> None:
    folder, name = changed
    table = lakemark.Table(folder)
    for step in ("in the log", "in a run", "compacted"):
        if step == "in a run":
            table.flush()
        if step == "compacted":
            table.migrate(progress=False)
        merged = spark.read.format("lakemark").load(str(folder))
        for condition in CONDITIONS:
            ours = fast.table(name).where(condition)
            assert collected(ours) == collected(merged.where(condition)), (step, condition)
            assert (len(scans(ours)) > 0) == (step == "compacted"), (step, condition)
        for query in QUERIES:
            assert collected(fast.sql(query.format(t=name))) == collected(fast.sql(query.format(t=f"lm.`{folder}`"))), (
                step,
                query,
            )
        assert fast.table(name).count() == ALL_ROWS + 1
    assert collected(fast.table(name)) == collected(spark.table(name))


def test_delta_alone_and_versions_have_none_of_them(
    spark: SparkSession, fast: SparkSession, changed: tuple[Path, str]
) -> None:
    _, name = changed
    assert spark.table(name).count() == ALL_ROWS
    assert fast.sql(f"SELECT count(*) FROM {name} VERSION AS OF 0").collect() == [(ALL_ROWS,)]
    assert fast.sql(f"SELECT id FROM {name} VERSION AS OF 0 WHERE id = 17").collect() == [(17,)]
    with settings((fast,), {"spark.lakemark.delta": "false"}):
        assert fast.table(name).count() == ALL_ROWS


def test_what_only_delta_s_reader_gives_is_refused(fast: SparkSession, changed: tuple[Path, str]) -> None:
    folder, name = changed
    with pytest.raises(Exception, match="which Delta's reader gives without them") as caught:
        fast.sql(f"SELECT id, _metadata.file_name FROM {name}").collect()
    told = str(caught.value)
    assert f"CALL lm.system.migrate(table => '{folder}')" in told
    assert "spark.lakemark.use_index=false" in told


def test_a_statement_reads_them_and_writes_what_delta_writes(
    spark: SparkSession, fast: SparkSession, changed: tuple[Path, str]
) -> None:
    folder, name = changed
    fast.sql(f"CREATE TABLE {name}_copy USING delta AS SELECT id, k, name FROM {name} WHERE name = 'changed'")
    assert sorted(row.id for row in spark.table(f"{name}_copy").collect()) == [18, 7000]
    # A statement of Delta's finds the rows of its own files.
    fast.sql(f"DELETE FROM {name} WHERE id = 20")
    fast.sql(f"UPDATE {name} SET name = 'by Delta' WHERE id = 21")
    assert spark.table(name).count() == ALL_ROWS - 1
    merged = collected(spark.read.format("lakemark").load(str(folder)))
    assert collected(fast.table(name)) == merged
    assert len(merged) == ALL_ROWS
    assert fast.sql(f"SELECT id FROM {name} WHERE name = 'by Delta'").collect() == [(21,)]


def test_changes_that_nobody_can_tell_any_more_are_not_passed_over(
    spark: SparkSession, fast: SparkSession, changed: tuple[Path, str]
) -> None:
    folder, name = changed
    for lost in ("manifest", "checkpoint"):
        shutil.rmtree(folder / "_lakemark" / lost, ignore_errors=True)
    with pytest.raises(Exception, match="nobody can tell which changes are buffered"):
        fast.table(name).where("id = 17").collect()
    assert spark.table(name).where("id = 17").count() == 1

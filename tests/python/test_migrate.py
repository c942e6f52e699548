"""Migration: buffered rows become rows of data files that every reader sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 3000


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": list(ids), "v": [n % 17 for n in ids], "part": [f"p{n % 3}" for n in ids]})


def by_id(table: pa.Table) -> dict[int, dict[str, Any]]:
    found = {row["id"]: row for row in table.select(["id", "v", "part"]).to_pylist()}
    assert len(found) == table.num_rows
    return found


def change(table: lakemark.Table, expected: dict[int, dict[str, Any]]) -> None:
    """A change of each kind, of which one moves a row to another partition."""
    table.upsert({"id": [1, ROWS + 5], "v": [100, 101], "part": ["p9", None]})
    table.update({"id": [2, 3], "v": [200, 201]})
    table.delete([7, 8])
    expected[1] = {"id": 1, "v": 100, "part": "p9"}
    expected[ROWS + 5] = {"id": ROWS + 5, "v": 101, "part": None}
    expected[2]["v"], expected[3]["v"] = 200, 201
    del expected[7], expected[8]


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_delta_table_gets_one_commit_that_plain_delta_rs_reads(tmp_path: Path, partitioned: bool) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(), partition_by=["part"] if partitioned else None)
    table = lakemark.Table(tmp_path, key="id")
    table.create_index("v", progress=False)
    expected = by_id(rows())
    change(table, expected)
    assert by_id(table.scan().to_arrow()) == expected
    assert by_id(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()) == by_id(rows())
    report = table.migrate()
    assert (report.rows, report.delta_version) == (4, 1)
    assert by_id(table.scan().to_arrow()) == expected
    assert by_id(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()) == expected
    info = table.updates
    assert info is not None
    assert (info.rows_buffered, info.rows_deleted, info.runs) == (0, 0, [])
    # The indexes cover the new files.
    assert table.count("v = 200") == 1
    assert all(index.coverage == 1.0 for index in table.indexes)
    assert table.verify()
    assert str(table.migrate()) == "nothing to migrate"
    # Others go on with the result, and so do we.
    deltalake.write_deltalake(str(tmp_path), rows(ROWS + 100, 10), mode="append")
    expected |= by_id(rows(ROWS + 100, 10))
    table.delete([ROWS + 100])
    del expected[ROWS + 100]
    assert by_id(table.scan().to_arrow()) == expected


def test_a_slice_of_the_keys_at_a_time(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows())
    table = lakemark.Table(tmp_path, key="id")
    expected = by_id(rows())
    for start in (0, 1):
        changed = {"id": list(range(start, ROWS, 10)), "v": [1000 + start] * (ROWS // 10)}
        table.update(changed)
        table.flush()
        for key in changed["id"]:
            expected[key]["v"] = 1000 + start
    for step in range(1, 6):
        report = table.migrate(0.25)
        assert by_id(table.scan().to_arrow()) == expected
        if step == 1:
            assert report.rows == 2 * ROWS // 10 // 4
            left = table.updates
            assert left is not None
            assert [run.rows_migrated for run in left.runs] == [75, 75]
            folded = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()
            assert sum(row["v"] >= 1000 for row in by_id(folded).values()) == 150
    assert by_id(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()) == expected


def test_slices_are_commits_of_their_own(tmp_path: Path) -> None:
    for part in range(4):
        deltalake.write_deltalake(str(tmp_path), rows(part * 500, 500), mode="append")
    table = lakemark.Table(tmp_path, key="id")
    table.update({"id": [100, 600, 1100, 1600], "v": [7, 7, 7, 7]})
    report = table.migrate(max_bytes=1, progress=False)
    assert (report.rows, report.files_replaced, report.files_written) == (4, 4, 4)
    lake = deltalake.DeltaTable(str(tmp_path))
    assert (lake.version(), report.delta_version) == (7, 7)
    found = by_id(lake.to_pyarrow_table())
    assert ([found[key]["v"] for key in (100, 600, 1100, 1600)], len(found)) == ([7, 7, 7, 7], 2000)
    with pytest.raises(lakemark.InvalidInputError, match="give max_bytes above 0"):
        table.migrate(max_bytes=0)


def test_migrations_of_few_rows_fill_up_small_files(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(0, 100))
    table = lakemark.Table(tmp_path, key="id")
    for step in range(20):
        table.insert(rows(1000 + step * 10, 10))
        table.migrate(progress=False)
    lake = deltalake.DeltaTable(str(tmp_path))
    small = [path for path in lake.file_uris() if path.rsplit("/", 1)[-1].startswith("added-")]
    assert len(small) <= 4
    assert by_id(lake.to_pyarrow_table()) == by_id(rows(0, 100)) | by_id(rows(1000, 200))
    assert table.count() == 300


def test_a_folder_is_migrated_for_our_readers(tmp_path: Path) -> None:
    for part in range(3):
        pq.write_table(rows(part * 1000, 1000), tmp_path / f"f{part}.parquet")
    table = lakemark.Table(tmp_path, key="id")
    expected = by_id(rows())
    for _ in range(2):
        change(table, expected)
        report = table.migrate()
        assert report.delta_version is None
        assert by_id(table.scan().to_arrow()) == expected
        assert by_id(lakemark.Table(tmp_path).scan().to_arrow()) == expected
        assert table.count() == len(expected)
        table.upsert(rows(7, 2))
        expected |= by_id(rows(7, 2))
    assert by_id(pq.read_table(tmp_path / "f0.parquet")) == by_id(rows(0, 1000))
    # A file whose rows were taken over must not change: nobody could tell which of both counts.
    pq.write_table(rows(0, 999), tmp_path / "f0.parquet")
    with pytest.raises(lakemark.ConflictError, match=r"f0.parquet was changed after its rows were migrated"):
        lakemark.Table(tmp_path).count()


def test_nothing_is_migrated_below_the_threshold_or_without_a_key(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows())
    with pytest.raises(lakemark.InvalidInputError, match="no key"):
        lakemark.Table(tmp_path).migrate()
    table = lakemark.Table(tmp_path, key="id")
    table.delete([1])
    assert str(table.migrate(threshold=0.5)) == "nothing to migrate"
    assert deltalake.DeltaTable(str(tmp_path)).version() == 0
    with pytest.raises(lakemark.InvalidInputError, match="above 0, up to 1"):
        table.migrate(0)
    assert table.migrate().rows_replaced == 1
    assert table.count() == ROWS - 1


def test_a_delta_table_that_asks_for_more_than_we_keep_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(), configuration={"delta.appendOnly": "true"})
    with pytest.raises(lakemark.UnsupportedError, match="appendOnly"):
        lakemark.Table(tmp_path, key="id")


@pytest.mark.parametrize("delta", [False, True])
def test_a_table_of_which_every_row_is_deleted_can_be_opened_and_filled_again(tmp_path: Path, delta: bool) -> None:
    if delta:
        deltalake.write_deltalake(str(tmp_path), rows())
    else:
        pq.write_table(rows(), tmp_path / "a.parquet")
    table = lakemark.Table(tmp_path, key="id")
    columns = table.scan().to_arrow().schema
    table.delete(list(range(ROWS)))
    assert table.migrate().rows_replaced == ROWS
    for _ in range(2):
        table = lakemark.Table(tmp_path)
        assert (table.count(), table.scan().to_arrow().schema) == (0, columns)
        table.insert(rows(7, 2))
        assert table.migrate().rows == 2
        assert by_id(lakemark.Table(tmp_path).scan().to_arrow()) == by_id(rows(7, 2))
        assert table.lookup([8]).to_arrow().num_rows == 1
        table.delete([7, 8])
        assert table.migrate().rows_replaced == 2


def test_progress_and_the_threshold_of_a_migration_that_begins_by_itself(tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "a.parquet")
    table = lakemark.Table(tmp_path)
    table.declare_key("id", progress=False, migration_threshold="50%")
    info = table.updates
    assert info is not None
    assert info.migration_threshold == 0.5
    assert "migrated from 50% on" in str(info)
    table.delete([1, 2])
    told: list[tuple[int, int]] = []
    report = table.migrate(progress=lambda done, total: told.append((done, total)))
    assert report.rows_replaced == 2
    # The last that is told is the build of the index of the key.
    assert told[-1] == (ROWS - 2, ROWS - 2)
    with pytest.raises(lakemark.InvalidInputError, match="such as 50%"):
        lakemark.Table(tmp_path, store=str(tmp_path / "other")).declare_key("id", migration_threshold="half")

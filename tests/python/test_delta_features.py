"""Features of Delta tables that ask more of a writer: delta-rs makes the tables, and reads what Lakemark commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 1000


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": list(ids), "v": [n % 17 + 1 for n in ids], "part": [f"p{n % 3}" for n in ids]})


def by_id(table: pa.Table) -> dict[int, dict[str, Any]]:
    found = {row["id"]: row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def test_a_row_that_breaks_a_check_constraint_stays_buffered_until_it_fits(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows())
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"positive": "v > 0"})
    table = lakemark.Table(tmp_path, key="id")
    changed = pa.table({"id": [1, 5000, 5001], "v": [50, 51, -1], "part": ["p0"] * 3})
    table.upsert(changed)
    expected = by_id(rows()) | by_id(changed)
    with pytest.raises(lakemark.ConstraintViolationError, match=r"row id = 5001 .*CHECK constraint positive"):
        table.migrate()
    # Nothing is lost, and nothing was committed.
    assert by_id(table.scan().to_arrow()) == expected
    assert deltalake.DeltaTable(tmp_path).version() == 1
    table.update({"id": [5001], "v": [52]})
    expected[5001]["v"] = 52
    assert table.migrate().delta_version == 2
    lake = deltalake.DeltaTable(tmp_path)
    assert by_id(lake.to_pyarrow_table()) == expected
    assert lake.metadata().configuration["delta.constraints.positive"] == "v > 0"


def test_a_constraint_that_engines_read_in_their_own_ways_is_refused_by_name(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows())
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"half": "v / 2 < 100"})
    with pytest.raises(lakemark.UnsupportedError, match=r"CHECK constraint half .*`/`.*drop it, or"):
        lakemark.Table(tmp_path, key="id")
    # Indexes and queries work.
    table = lakemark.Table(tmp_path)
    table.create_index("v", progress=False)
    assert table.count("v = 1") == sum(n % 17 == 0 for n in range(ROWS))

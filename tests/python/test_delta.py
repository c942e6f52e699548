"""Delta tables: the current version, its partition columns and its deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "delta"
    for year in (2023, 2024):
        ids = list(range(100)) if year == 2023 else list(range(100, 250))
        rows = pa.table(
            {"id": ids, "kind": [f"k{n % 5}" for n in ids], "year": pa.array([year] * len(ids), pa.int32())}
        )
        deltalake.write_deltalake(folder, rows, mode="append", partition_by=["year"])
    return folder


def test_a_delta_table_is_indexed_and_queried(folder: Path) -> None:
    table = lakemark.Table(folder)
    index = table.create_index("kind", using="bitmap", progress=False)
    assert (index.coverage, index.rows) == (1.0, 250)
    assert table.count("kind = 'k3'") == 50
    assert table.count("kind = 'k3' AND year = 2024") == 30
    info = table.info()
    assert (info.format, info.delta_version, info.rows) == ("delta", 1, 250)
    assert table.snapshot.partition_columns == ["year"]
    found = table.scan("kind = 'k0' AND year = 2023", columns=["year", "id"], limit=2).to_arrow().to_pylist()
    assert len(found) == 2
    assert all(row["year"] == 2023 and row["id"] % 5 == 0 for row in found)


def test_rows_that_delta_deleted_or_added_are_gone_or_there(folder: Path) -> None:
    table = lakemark.Table(folder)
    table.create_index("kind", using="bitmap", progress=False)
    deltalake.DeltaTable(folder).delete("id >= 50 AND id < 120")
    late = pa.table({"id": [900, 901], "kind": ["k3", "k4"], "year": pa.array([2024, 2024], pa.int32())})
    deltalake.write_deltalake(folder, late, mode="append")
    rows = deltalake.DeltaTable(folder).to_pyarrow_table().to_pylist()
    for kind in ("k0", "k3", "k4"):
        assert table.count(f"kind = '{kind}'") == sum(row["kind"] == kind for row in rows)
    assert table.indexes[0].coverage < 1.0
    table.build(progress=False)
    assert table.indexes[0].coverage == 1.0
    assert table.count("kind = 'k3'") == sum(row["kind"] == "k3" for row in rows)

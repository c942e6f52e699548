"""A small table of things, and what it has after changes."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import lakemark

STOCK = {"id": list(range(10)), "name": [f"thing {n}" for n in range(10)], "price": [n * 1.5 for n in range(10)]}
SMALL = {"cache_bytes": 64 << 10, "page_bytes": 512}


def stock_folder(tmp_path: Path) -> Path:
    """Ten things in two files; the column `day` is a date and `n` a 32-bit integer."""
    folder = tmp_path / "stock"
    folder.mkdir()
    rows = pa.table(
        {
            **STOCK,
            "n": pa.array(range(10), pa.int32()),
            "day": pa.array([dt.date(2024, 1, 1 + n) for n in range(10)], pa.date32()),
        }
    )
    pq.write_table(rows.slice(0, 5), folder / "a.parquet")
    pq.write_table(rows.slice(5), folder / "b.parquet")
    return folder


def rows_of(table: lakemark.Table, condition: str | None = None, columns: list[str] | None = None) -> list[Any]:
    """The rows as tuples, in the order of the first column."""
    found = table.scan(condition, columns=columns).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def names(table: lakemark.Table) -> dict[int, str | None]:
    return dict(rows_of(table, columns=["id", "name"]))


def values(rows: lakemark.Rows) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in rows.to_arrow().to_pylist()]

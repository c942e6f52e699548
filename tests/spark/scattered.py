"""A table whose values are in no order, so that an index alone knows where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path


FILES = 3
GROUPS = 10
GROUP_ROWS = 100
FILE_ROWS = GROUPS * GROUP_ROWS
ALL_ROWS = FILES * FILE_ROWS


def scattered(part: int) -> pa.Table:
    """Values of `k` and `name` in no order: each row group has small and large ones, each value is in one row."""
    ids = range(part * FILE_ROWS, (part + 1) * FILE_ROWS)
    k = [n * 1237 % ALL_ROWS for n in ids]
    return pa.table({"id": list(ids), "k": k, "name": [f"n{n:05}" for n in k], "part": [part] * FILE_ROWS})


def write_scattered(folder: Path, files: int = FILES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(files):
        pq.write_table(
            scattered(part), folder / f"part-{part}.parquet", row_group_size=GROUP_ROWS, use_dictionary=False
        )
    return folder

"""What the doctests of the package may use; tests have more in tests/python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def flights(tmp_path: Path) -> str:
    """A folder of three files with thirty flights: from EWR, JFK and LGA in turns, each 100 miles farther."""
    folder = tmp_path / "flights"
    folder.mkdir()
    for part in range(3):
        numbers = range(10 * part, 10 * part + 10)
        rows = pa.table(
            {
                "flight": pa.array(numbers, pa.int64()),
                "origin": [("EWR", "JFK", "LGA")[n % 3] for n in numbers],
                "distance": pa.array([100 * n for n in numbers], pa.int32()),
            }
        )
        pq.write_table(rows, folder / f"part-{part}.parquet", row_group_size=4, write_page_index=True)
    return str(folder)

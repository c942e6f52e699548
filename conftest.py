"""What the doctests of the package may use; tests have more in tests/python."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# No test goes by what its user has configured, nor do the processes that it starts.
os.environ["LAKEMARK_CONFIG"] = ""


@pytest.fixture
def in_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that nobody put into an order come with their second half first, as they may on another machine.

    Files are read at the same time, and the rows of the faster ones come first. A test that goes by the order that it
    saw once fails with this at once: it sorts, or says `ORDER BY`.
    """
    # The tests of the code itself run without the native library.
    import lakemark

    class InNoOrder(lakemark.Rows):
        def to_arrow(self) -> pa.Table:
            found = super().to_arrow()
            half = found.num_rows // 2
            return pa.concat_tables([found.slice(half), found.slice(0, half)])

    def turned(method: Callable[..., lakemark.Rows]) -> Callable[..., lakemark.Rows]:
        @functools.wraps(method)
        def ask(asked: object, *given: object, **named: object) -> lakemark.Rows:
            rows = method(asked, *given, **named)
            has_order = isinstance(asked, lakemark.Session) and not is_query_without_order(str(given[0]))
            return rows if has_order else InNoOrder(rows._inner)  # noqa: SLF001 - the same rows

        return ask

    for kind, name in (
        (lakemark.Session, "sql"),
        (lakemark.Table, "scan"),
        (lakemark.Table, "lookup"),
        (lakemark.Table, "group_count"),
    ):
        monkeypatch.setattr(kind, name, turned(getattr(kind, name)))


def is_query_without_order(statement: str) -> bool:
    """Whether a statement gives rows of tables in any order."""
    words = statement.upper()
    return words.lstrip().startswith(("SELECT", "WITH")) and "ORDER BY" not in words


@pytest.fixture
def flights(tmp_path: Path, in_no_order: None) -> str:  # noqa: ARG001 - how their rows come
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


@pytest.fixture
def terms(tmp_path: Path) -> str:
    """A folder of two files with links: what animals are, and what they like."""
    folder = tmp_path / "terms"
    folder.mkdir()
    links = [
        ("cat", "is_a", "mammal"),
        ("dog", "is_a", "mammal"),
        ("mammal", "is_a", "animal"),
        ("fish", "is_a", "animal"),
        ("cat", "likes", "fish"),
        ("dog", "likes", "cat"),
    ]
    for part in range(2):
        rows = [dict(zip("spo", link, strict=True)) for link in links[3 * part : 3 * part + 3]]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"part-{part}.parquet")
    return str(folder)

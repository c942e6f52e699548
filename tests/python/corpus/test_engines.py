"""Every predicate of the corpus through Polars, DuckDB and datasets of pyarrow, whose own rows are expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest

import lakemark
from corpus.cases import CASES, Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    Ask = Callable[[Case], list[int]]

# All predicates where everything is indexed, and some of them in the other states.
ASKED = {"on": CASES, "buffered": CASES[::6], "half_built": CASES[1::12], "segments_corrupted": CASES[2::12]}
by_state = pytest.mark.parametrize("state", ASKED)


@pytest.fixture(autouse=True)
def _warnings_stay_here() -> Iterator[None]:
    """Warnings about bad indexes come with the next call, and the engines make calls of ours in threads of theirs."""
    yield
    lakemark.Session().sql("SELECT 1").to_arrow()


class Watched(lakemark.Table):
    """A table that remembers which conditions its scans got."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.conditions: list[str | None] = []

    def scan(
        self,
        filter: str | None = None,
        columns: object = None,
        limit: int | None = None,
        *,
        use_index: bool = True,
    ) -> lakemark.Rows:
        self.conditions.append(filter)
        return super().scan(filter, columns, limit, use_index=use_index)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def rows(off_session: lakemark.Session) -> pa.Table:
    """All rows, in memory."""
    return off_session.sql("SELECT * FROM t ORDER BY id").to_arrow().combine_chunks()


def compare(state: str, table: Watched, ours: Ask, theirs: Ask) -> tuple[int, int]:
    """Asks for the rows of the predicates; gives how many had an answer, and how many a condition for our scan."""
    wrong, answered, pushed = [], 0, 0
    for case in ASKED[state]:
        try:
            expected = sorted(theirs(case))
        except Exception:  # noqa: BLE001, S112 - what the engine does not know, or cannot compute
            continue
        table.conditions.clear()
        found = sorted(ours(case))
        answered += 1
        pushed += any(condition is not None for condition in table.conditions)
        if found != expected:
            wrong.append((case.id, table.conditions.copy(), len(expected), len(found)))
    assert wrong == []
    return answered, pushed


def of_polars(frame: pl.LazyFrame) -> Ask:
    def ask(case: Case) -> list[int]:
        found = pl.SQLContext(t=frame).execute(f"SELECT id FROM t WHERE {case.sql}").collect()
        return found["id"].to_list()

    return ask


def of_duckdb(connection: duckdb.DuckDBPyConnection, name: str) -> Ask:
    def ask(case: Case) -> list[int]:
        found = connection.execute(f"SELECT id FROM {name} AS t WHERE {case.duckdb or case.sql}").fetchall()
        return [row[0] for row in found]

    return ask


@by_state
def test_law_1_polars_finds_its_own_rows(state: str, rows: pa.Table, state_folder: Callable[[str], Path]) -> None:
    table = Watched(state_folder(state))
    ours, theirs = of_polars(lakemark.scan_polars(table)), of_polars(pl.DataFrame(rows).lazy())
    answered, pushed = compare(state, table, ours, theirs)
    if state == "on":
        assert (answered > 550, pushed > 450) == (True, True), (answered, pushed)


@by_state
def test_law_1_duckdb_finds_its_own_rows(state: str, rows: pa.Table, state_folder: Callable[[str], Path]) -> None:
    table = Watched(state_folder(state))
    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    connection.register("in_memory", rows)
    lakemark.scan_duckdb(table, connection).create_view("indexed")
    answered, pushed = compare(state, table, of_duckdb(connection, "indexed"), of_duckdb(connection, "in_memory"))
    if state == "on":
        assert (answered > 600, pushed > 330) == (True, True), (answered, pushed)


@by_state
def test_law_1_a_dataset_has_the_rows_of_one_in_memory(
    state: str, rows: pa.Table, state_folder: Callable[[str], Path]
) -> None:
    table = Watched(state_folder(state))
    # Polars writes its conditions as expressions of pyarrow here.
    ours = of_polars(pl.scan_pyarrow_dataset(table.to_pyarrow_dataset()))
    answered, pushed = compare(state, table, ours, of_polars(pl.scan_pyarrow_dataset(ds.dataset(rows))))
    if state == "on":
        assert (answered > 550, pushed > 300) == (True, True), (answered, pushed)

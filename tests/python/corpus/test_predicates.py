"""Every predicate of the corpus, in every state of the indexes, through the Python API, the shell and a server."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import adbc_driver_manager
import pyarrow as pa
import pytest

import lakemark
from corpus.answers import ids_or_error
from corpus.cases import CASES, STATES, Case

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb
    from adbc_driver_manager.dbapi import Connection, Cursor

    RowsOff = Callable[[Case], list[int] | str]
    TableOf = Callable[[str], lakemark.Table]

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
by_state = pytest.mark.parametrize("state", STATES)


@by_case
def test_rows_without_indexes_are_the_judges(case: Case, rows_off: RowsOff, judge: duckdb.DuckDBPyConnection) -> None:
    rows = rows_off(case)
    if case.rows is None:
        # The judge gives an error, and so do we.
        assert isinstance(rows, str)
        return
    sql = f"SELECT id FROM t WHERE {case.duckdb or case.sql} ORDER BY id"
    expected = [row[0] for row in judge.execute(sql).fetchall()]
    # A note that we differ must stay true, too.
    assert (rows == expected) == ("datafusion" not in case.differs)


@by_state
@by_case
def test_law_1_indexes_never_change_the_rows(case: Case, state: str, rows_off: RowsOff, state_table: TableOf) -> None:
    expected = rows_off(case)
    table = state_table(state)
    assert ids_or_error(lambda: table.scan(case.sql, columns=["id"])) == expected


@by_state
@by_case
def test_law_1_indexes_never_change_the_count(case: Case, state: str, rows_off: RowsOff, state_table: TableOf) -> None:
    expected = rows_off(case)
    try:
        counted: int | str = state_table(state).count(case.sql)
    except lakemark.LakemarkError as error:
        counted = type(error).__name__
    assert counted == (expected if isinstance(expected, str) else len(expected))


@by_state
@pytest.mark.parametrize("case", CASES[::25], ids=lambda case: case.id)
def test_law_1_whole_rows_are_the_same(
    case: Case, state: str, off_session: lakemark.Session, state_table: TableOf
) -> None:
    if "datafusion" in case.differs:
        pytest.skip("may be an error: the rows are compared by id")
    without = off_session.sql(f"SELECT * FROM t WHERE {case.sql}").to_arrow()
    indexed = state_table(state).scan(case.sql).to_arrow()
    assert indexed.column_names == without.column_names
    # repr tells -0.0 from 0.0 and makes NaN equal to itself.
    assert repr(plain(indexed)) == repr(plain(without))


def plain(rows: pa.Table) -> dict[str, list[object]]:
    """Columns in the order of the ids; moments as numbers, since pandas cannot hold all of them in all zones."""
    ordered = rows.sort_by("id")
    columns = {}
    for name in ordered.column_names:
        column = ordered.column(name)
        columns[name] = (column.cast("int64") if pa.types.is_timestamp(column.type) else column).to_pylist()
    return columns


@by_state
def test_law_1_shell_counts_the_same(state: str, rows_off: RowsOff, state_folder: Callable[[str], Path]) -> None:
    asked = [case for case in CASES if isinstance(rows_off(case), list)]
    assert len(asked) > 550
    for start in range(0, len(asked), 50):
        batch = asked[start : start + 50]
        counts = shell_counts(state_folder(state), batch)
        assert counts == {case.id: len(rows_off(case)) for case in batch}


@by_state
def test_law_1_a_server_gives_the_same_rows(state: str, rows_off: RowsOff, flight: Connection) -> None:
    asked = [case for case in CASES if isinstance(rows_off(case), list)]
    assert len(asked) > 550
    for start in range(0, len(asked), 50):
        batch = asked[start : start + 50]
        parts = [f"SELECT '{case.id}' AS name, id FROM t_{state} AS t WHERE {case.sql}" for case in batch]
        found: dict[str, list[int]] = {case.id: [] for case in batch}
        with flight.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(parts))
            for name, row in cursor.fetchall():
                found[name].append(row)
        assert {name: sorted(ids) for name, ids in found.items()} == {case.id: rows_off(case) for case in batch}


def test_what_is_an_error_is_one_for_clients_of_a_server(rows_off: RowsOff, flight: Connection) -> None:
    failing = [case for case in CASES if isinstance(rows_off(case), str)]
    assert failing
    for case in failing:
        with flight.cursor() as cursor, pytest.raises(adbc_driver_manager.Error):
            fetched(cursor, f"SELECT id FROM t_on AS t WHERE {case.sql}")


def test_whole_rows_of_every_type_come_through_a_server(off_session: lakemark.Session, flight: Connection) -> None:
    expected = off_session.sql("SELECT * FROM t").to_arrow()
    for state in ("on", "buffered"):
        with flight.cursor() as cursor:
            found = fetched(cursor, f"SELECT * FROM t_{state}")
        assert found.column_names == expected.column_names
        # repr tells -0.0 from 0.0 and makes NaN equal to itself.
        assert repr(plain(found)) == repr(plain(expected))


def fetched(cursor: Cursor, statement: str) -> pa.Table:
    cursor.execute(statement)
    return cursor.fetch_arrow_table()


def shell_counts(folder: Path, batch: list[Case]) -> dict[str, int]:
    parts = [f"SELECT '{case.id}' AS id, count(*) AS n FROM t WHERE {case.sql}" for case in batch]
    text = f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{folder}'; {' UNION ALL '.join(parts)}"
    command = [sys.executable, "-m", "lakemark", "sql", "--format", "csv", "-c", text]
    # The command is to be the library that this process tests.
    environment = {**os.environ, "PYTHONPATH": str(Path(lakemark.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return {row["id"]: int(row["n"]) for row in csv.DictReader(done.stdout.splitlines())}

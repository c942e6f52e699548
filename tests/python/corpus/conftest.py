"""The corpus' table in every state of its indexes, built once per session."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import adbc_driver_flightsql.dbapi
import duckdb
import pytest

import lakemark
from corpus import cases
from corpus.answers import create_indexes, ids_or_error
from serving import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from adbc_driver_manager.dbapi import Connection


@pytest.fixture(autouse=True)
def _indexes_may_be_bad() -> None:
    # A bad index is reported as a warning; here it is bad on purpose, and the rows are what is checked.
    warnings.simplefilter("ignore", lakemark.LakemarkWarning)


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(state: str) -> Path:
        if state not in made:
            path = tmp_path_factory.mktemp("corpus") / state
            cases.STATES[state](cases.WHOLE, path, create_indexes)
            made[state] = path
        return made[state]

    return folder


@pytest.fixture(scope="session")
def state_table(state_folder: Callable[[str], Path]) -> Callable[[str], lakemark.Table]:
    opened: dict[str, lakemark.Table] = {}

    def table(state: str) -> lakemark.Table:
        if state not in opened:
            opened[state] = lakemark.Table(state_folder(state))
        return opened[state]

    return table


@pytest.fixture(scope="session")
def off_session(state_folder: Callable[[str], Path]) -> lakemark.Session:
    """A session over the indexed table with the indexes switched off: what all states must agree with."""
    session = lakemark.connect()
    session.sql("SET lakemark.use_index = false")
    session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{state_folder('on')}'")
    return session


@pytest.fixture(scope="session")
def rows_off(off_session: lakemark.Session) -> Callable[[cases.Case], list[int] | str]:
    """The ids that satisfy a predicate without indexes, or the class of the error it gives."""
    known: dict[str, list[int] | str] = {}

    def rows(case: cases.Case) -> list[int] | str:
        if case.id not in known:
            known[case.id] = ids_or_error(lambda: off_session.sql(f"SELECT id FROM t WHERE {case.sql}"))
        return known[case.id]

    return rows


@pytest.fixture(scope="session")
def judge() -> duckdb.DuckDBPyConnection:
    """DuckDB over the same Parquet files."""
    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    connection.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{cases.TABLE}/*.parquet', union_by_name = true)")
    return connection


@pytest.fixture(scope="session")
def flight(state_folder: Callable[[str], Path]) -> Iterator[Connection]:
    """A connection to a server that has a table for each state."""
    tables = [f"t_{state}={state_folder(state)}" for state in cases.STATES]
    with (
        serve(*tables, "--read-only") as server,
        adbc_driver_flightsql.dbapi.connect(server.url, autocommit=True) as connection,
    ):
        yield connection

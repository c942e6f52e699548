"""The real ADBC driver: statements, parameters, changes, what it asks of tables, and bad input."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Any

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import pyarrow as pa
import pytest

import lakemark
from serving import CARRIERS, ROWS, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from adbc_driver_manager.dbapi import Connection

    from serving import Server


def connect(server: Server, **options: str) -> Connection:
    return adbc_driver_flightsql.dbapi.connect(server.url, db_kwargs=options, autocommit=True)


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with connect(server) as connection:
        yield connection


def rows(connection: Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall()


def flights_of(carrier: str) -> int:
    return sum(1 for n in range(ROWS) if n % 11 and CARRIERS[n % 5] == carrier)


def test_a_first_query(connection: Connection) -> None:
    statement = "SELECT count(*) AS flights FROM flights WHERE carrier = ?"
    assert rows(connection, statement, "UA") == [(flights_of("UA"),)]


def test_rows_are_those_of_the_library(connection: Connection, folder: Path) -> None:
    session = lakemark.connect()
    session.table(folder, name="flights")
    for statement in (
        "SELECT * FROM flights ORDER BY number",
        "SELECT carrier, count(*) AS n, avg(delay) AS d, max(day) AS last FROM flights GROUP BY 1 ORDER BY 1",
        "SELECT carrier || '!' AS c, CAST(number AS VARCHAR) AS t FROM flights WHERE number < 9 ORDER BY number",
        "SELECT * FROM flights WHERE false",
        "SELECT now() - now() AS nothing, [1, 2] AS list, {a: 1} AS fields, X'00ff' AS bytes, NULL AS none",
    ):
        with connection.cursor() as cursor:
            cursor.execute(statement)
            found = cursor.fetch_arrow_table()
        expected = pa.table(session.sql(statement))
        assert found.column_names == expected.column_names, statement
        assert found.to_pylist() == expected.to_pylist(), statement


def test_a_large_result_comes_whole(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT value, repeat('x', 100) AS x FROM generate_series(1, 500000)")
        reader = cursor.fetch_record_batch()
        assert sum(batch.num_rows for batch in reader) == 500_000


def test_changes_are_seen_by_every_client_and_by_other_programs(server: Server, folder: Path) -> None:
    with connect(server) as one, connect(server) as other:
        assert rows(one, "INSERT INTO flights VALUES (5000, 'XX', 1.5, DATE '2026-01-02')") == [(1,)]
        assert rows(other, "SELECT carrier, delay FROM flights WHERE number = 5000") == [("XX", 1.5)]
        assert rows(other, "UPDATE flights SET carrier = ? WHERE number = ?", "YY", 5000) == [(1,)]
        assert lakemark.Table(folder).count("carrier = 'YY'") == 1
        assert rows(one, "DELETE FROM flights WHERE number >= ?", 999) == [(2,)]
        assert lakemark.Table(folder).count() == ROWS - 1


def test_many_rows_of_parameters_are_changes_one_by_one(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO flights (number, carrier) VALUES (?, ?)",
            [(6000 + n, "'; DROP TABLE flights; --") for n in range(10)],
        )
        assert cursor.rowcount == 10
    assert rows(connection, "SELECT count(*), min(carrier) FROM flights WHERE number >= 6000") == [
        (10, "'; DROP TABLE flights; --")
    ]


def test_parameters_have_types_before_they_have_values(connection: Connection) -> None:
    with connection.cursor() as cursor:
        schema = cursor.adbc_prepare("SELECT number FROM flights WHERE carrier = ? AND delay < ?")
        assert schema is not None
        assert schema.types == [pa.string(), pa.float64()]
        assert cursor.adbc_execute_schema("SELECT day FROM flights").types == [pa.date32()]


def test_indexes_and_versions(connection: Connection, folder: Path) -> None:
    assert rows(connection, "CREATE INDEX c ON flights USING bitmap (carrier)")[0][:3] == (True, 1, ROWS)
    assert [row[0] for row in rows(connection, "SHOW INDEXES FROM flights")].count("c") == 1
    assert rows(connection, "SELECT count(*) FROM flights WHERE carrier = 'UA'") == [(flights_of("UA"),)]
    version = lakemark.Table(folder).history()[0].version
    rows(connection, "DELETE FROM flights WHERE number < 100")
    assert rows(connection, f"SELECT count(*) FROM flights VERSION AS OF {version}") == [(ROWS,)]
    assert rows(connection, "SELECT count(*) FROM flights") == [(ROWS - 100,)]


def test_the_driver_finds_tables_columns_and_keys(connection: Connection) -> None:
    assert connection.adbc_get_info()["vendor_name"] == "Lakemark"
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
    schema = connection.adbc_get_table_schema("flights")
    assert schema.names == ["number", "carrier", "delay", "day"]
    objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    (catalog,) = [entry for entry in objects if entry["catalog_name"] == "lakemark"]
    (public,) = [entry for entry in catalog["catalog_db_schemas"] if entry["db_schema_name"] == "public"]
    (table,) = public["db_schema_tables"]
    assert (table["table_name"], table["table_type"]) == ("flights", "TABLE")
    assert [column["column_name"] for column in table["table_columns"]] == ["number", "carrier", "delay", "day"]


def test_what_is_refused_says_what_to_do_and_leaves_the_connection_as_it_was(connection: Connection) -> None:
    for statement, error, says in (
        ("SELECT nosuch FROM flights", adbc_driver_manager.ProgrammingError, "nosuch"),
        ("SELEC 1", adbc_driver_manager.ProgrammingError, "SELEC"),
        ("BEGIN", adbc_driver_manager.NotSupportedError, "transactions of several statements"),
        ("SET lakemark.use_index = false", adbc_driver_manager.NotSupportedError, "settings are those of the server"),
        ("COPY flights TO '/tmp/x.csv'", adbc_driver_manager.NotSupportedError, "COPY would write"),
        ("SELECT '" + "x" * (1 << 20) + "'", adbc_driver_manager.ProgrammingError, "bytes, and 1048576 are allowed"),
    ):
        with pytest.raises(error, match=says):
            rows(connection, statement)
    assert rows(connection, "SELECT count(*) FROM flights") == [(ROWS,)]


def test_a_connection_cannot_leave_auto_commit(server: Server) -> None:
    with (
        pytest.warns(Warning, match="autocommit"),
        adbc_driver_flightsql.dbapi.connect(server.url) as connection,
    ):
        assert rows(connection, "SELECT 1") == [(1,)]


def test_clients_that_vanish_leave_room_for_others(folder: Path) -> None:
    with serve(f"flights={folder}", "--running", "1") as server:
        for _ in range(5):
            with connect(server) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT value, repeat('x', 1000) AS x FROM generate_series(1, 10000000)")
                cursor.fetchone()
        with connect(server) as connection:
            assert rows(connection, "SELECT count(*) FROM flights") == [(ROWS,)]


def test_many_clients_at_once_get_the_answers_of_one(server: Server) -> None:
    def ask(number: int) -> list[int]:
        carrier = CARRIERS[number % 5]
        with connect(server) as connection:
            statement = "SELECT count(*) FROM flights WHERE carrier = ?"
            return [rows(connection, statement, carrier)[0][0] for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(32)))
    assert found == [[flights_of(CARRIERS[number % 5])] * 20 for number in range(32)]

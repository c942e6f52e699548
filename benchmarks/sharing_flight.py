"""`lakemark serve` as a process of its own, with a Flight SQL connection for each client."""

from __future__ import annotations

import importlib.util
import selectors
import subprocess
import sys
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Any

from sharing_engines import Engine, NotHereError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from sharing_engines import Ask

    AskBy = Callable[[Any, str], pa.Table]

LISTENING = "listening on "
DRIVER = "adbc_driver_flightsql"
START_SECONDS, STOP_SECONDS = 60.0, 10.0
# With many clients a statement waits longer for its turn than users want to.
CONFIG = "[serve.limits]\nwait_seconds = 1800\n"


def open_flight(tables: Mapping[str, str], by: AskBy, share: str | None = None) -> Engine:
    """Starts the server over the tables and waits until it listens.

    What queries share is as given, or the server's own default. Clients ask as `by` does, which takes a connection and
    a statement. Each is connected before anything is measured.
    """
    if importlib.util.find_spec(DRIVER) is None:
        raise NotHereError("adbc-driver-flightsql is missing: pip install --requirement benchmarks/requirements.txt")
    named = [f"{name}={folder}" for name, folder in tables.items()]
    said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - written to as long as the server runs
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as config:
        config.write(CONFIG)
        config.flush()
        command = [
            sys.executable,
            "-m",
            "lakemark",
            "serve",
            *named,
            "--listen",
            "127.0.0.1:0",
            "--config",
            config.name,
            *(["--share", share] if share else []),
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        line = first_line(server)
    if not line.startswith(LISTENING):
        server.kill()
        server.wait()
        said.seek(0)
        reason = (said.read().strip() or line or f"nothing in {START_SECONDS:.0f} s").splitlines()[0]
        raise NotHereError(f"lakemark serve does not listen: {reason}")
    # Nobody reads what it says later, so that a full pipe must not stop it.
    threading.Thread(target=drain, args=(server.stdout,), daemon=True).start()
    address = line.removeprefix(LISTENING).strip()
    return Engine(lambda: client(address, by), server.pid, address, lambda: stop(server))


def first_line(server: subprocess.Popen[str]) -> str:
    """The first line that it prints; nothing if it ends before, or takes too long."""
    if server.stdout is None:
        return ""
    with selectors.DefaultSelector() as ready:
        ready.register(server.stdout, selectors.EVENT_READ)
        return server.stdout.readline() if ready.select(START_SECONDS) else ""


def drain(stream: IO[str] | None) -> None:
    """Reads to the end."""
    for _ in stream or ():
        pass


def client(address: str, by: AskBy) -> Ask:
    """A client with a connection of its own."""
    from adbc_driver_flightsql import dbapi

    connection: Any = dbapi.connect(address, autocommit=True)
    return lambda sql: by(connection, sql)


def by_cursor(connection: Any, sql: str) -> pa.Table:  # noqa: ANN401 - a connection of ADBC
    """As most programs ask, by four calls: the driver prepares the statement, runs it, takes its rows and closes it."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


def directly(connection: Any, sql: str) -> pa.Table:  # noqa: ANN401 - a connection of ADBC
    """By two calls: the driver runs the statement and takes its rows."""
    import pyarrow as pa

    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query(sql)
        stream, _ = cursor.adbc_statement.execute_query()
        return pa.RecordBatchReader.from_stream(stream).read_all()


def stop(server: subprocess.Popen[str]) -> None:
    """Ends the server, politely at first."""
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()

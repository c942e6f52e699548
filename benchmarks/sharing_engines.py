"""The ways in which the sharing benchmark answers queries, each opened in a process of its own.

```text
engine       DataFusion's own Parquet tables, in a session of the same build with DataFusion's own settings
datafusion   the same by DataFusion's own package
memory       DataFusion over the rows in memory: what is left if nobody decodes
duckdb       DuckDB on the Parquet files, a cursor for each client
off          Lakemark with indexes and `lakemark.share = off`
off again    the same once more: what noise alone does
plans, pages, stars     the other levels of `lakemark.share`
flight       `lakemark serve` through Flight SQL, a connection for each client, a cursor for each statement
flight alone the same without the calls that prepare a statement and close it, which a cursor makes
flight stars a cursor for each statement, of a server whose queries share star joins (`--share stars`)
```

Clients of one process share a session. A way that cannot run here says why and is left out.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    import lakemark

    Ask = Callable[[str], pa.Table]

ENGINE, DATAFUSION, MEMORY, DUCKDB = "engine", "datafusion", "memory", "duckdb"
FLIGHT, DIRECT, FLIGHT_STARS = "flight", "flight alone", "flight stars"
OFF, AGAIN, PLANS, PAGES, STARS = "off", "off again", "plans", "pages", "stars"
LEVELS = (PLANS, PAGES, STARS)
SERVED = (FLIGHT, DIRECT, FLIGHT_STARS)
WAYS = (ENGINE, DATAFUSION, MEMORY, DUCKDB, OFF, AGAIN, *LEVELS, *SERVED)


class NotHereError(Exception):
    """Why a way cannot run here."""


@dataclass(frozen=True)
class Engine:
    """An engine that runs.

    Attributes:
        client: Makes a client.
        process: The process whose CPU and reads are those of the queries.
        note: What is worth to be known about it.
        close: Ends it.
    """

    client: Callable[[], Ask]
    process: int
    note: str = ""
    close: Callable[[], None] = lambda: None


def open_way(way: str, tables: Mapping[str, str]) -> Engine:
    """Opens a way over tables, by name and folder."""
    if way in SERVED:
        from sharing_flight import by_cursor, directly, open_flight

        share = STARS if way == FLIGHT_STARS else None
        return open_flight(tables, directly if way == DIRECT else by_cursor, share)
    opened = {ENGINE: open_engine, DATAFUSION: open_datafusion, MEMORY: open_memory, DUCKDB: open_duckdb}
    if way in opened:
        return opened[way](tables)
    return open_lakemark(tables, OFF if way == AGAIN else way)


def open_engine(tables: Mapping[str, str]) -> Engine:
    """DataFusion's own Parquet tables."""
    from suites import ENGINE_SETTINGS

    session = connect()
    for name, value in ENGINE_SETTINGS.items():
        session.sql(f"SET {name} = {value}")
    note = set_level(session, OFF)
    for name, folder in tables.items():
        session.sql(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{folder}/'")
    return Engine(lambda: ask_of(session), os.getpid(), note)


def open_memory(tables: Mapping[str, str]) -> Engine:
    """The rows as the files have them, decoded once and before anybody asks."""
    import pyarrow.dataset as pads

    session = connect()
    set_level(session, OFF)
    for name, folder in tables.items():
        files = sorted(str(path) for path in Path(folder).glob("*.parquet"))
        session.register(name, pads.dataset(files).to_table())
    return Engine(lambda: ask_of(session), os.getpid())


def open_lakemark(tables: Mapping[str, str], level: str) -> Engine:
    """Lakemark with a level of sharing."""
    session, note = session_of(tables, level)
    return Engine(lambda: ask_of(session), os.getpid(), note)


def session_of(tables: Mapping[str, str], level: str) -> tuple[lakemark.Session, str]:
    """A session that knows the tables and shares so much, and what is worth to be known about it."""
    session = connect()
    note = set_level(session, level)
    for name, folder in tables.items():
        session.table(folder, name)
    return session, note


def connect() -> lakemark.Session:
    """A session of this build."""
    import lakemark

    return lakemark.connect()


def ask_of(session: lakemark.Session) -> Ask:
    """A client of a session."""
    return lambda sql: session.sql(sql).to_arrow()


def set_level(session: lakemark.Session, level: str) -> str:
    """Sets the level of sharing; a build that does not know the setting shares nothing, which is the level off."""
    import lakemark

    try:
        session.sql(f"SET lakemark.share = '{level}'")
    except lakemark.LakemarkError as error:
        refused = f"lakemark.share = {level} is refused: {str(error).splitlines()[0]}"
        if level != OFF:
            raise NotHereError(refused) from error
        return refused
    return ""


def open_datafusion(tables: Mapping[str, str]) -> Engine:
    """DataFusion's own package."""
    import datafusion
    import pyarrow as pa

    context = datafusion.SessionContext()
    for name, folder in tables.items():
        context.register_parquet(name, folder)

    def ask(sql: str) -> pa.Table:
        frame = context.sql(sql)
        return pa.Table.from_batches(frame.collect(), frame.schema())

    return Engine(lambda: ask, os.getpid(), f"datafusion {datafusion.__version__}")


def open_duckdb(tables: Mapping[str, str]) -> Engine:
    """DuckDB on the files."""
    import duckdb

    # What it advises instead plans a query twice, which takes longer than to copy some rows.
    warnings.filterwarnings("ignore", "Arrow output on a DB-API result")
    connection = duckdb.connect()
    for name, folder in tables.items():
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/*.parquet')")

    def client() -> Ask:
        cursor: Any = connection.cursor()
        return lambda sql: cursor.execute(sql).to_arrow_table()

    return Engine(client, os.getpid(), f"duckdb {duckdb.__version__}", connection.close)

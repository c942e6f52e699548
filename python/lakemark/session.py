"""SQL over indexed tables, with Lakemark's own engine."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

from lakemark import _arrow, _internal
from lakemark.advice import Advice, text_of
from lakemark.exceptions import InvalidInputError
from lakemark.rows import Rows
from lakemark.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ArrowStream", "Session", "connect"]


class ArrowStream(Protocol):
    """Anything that hands out an Arrow C stream: a pyarrow table or reader, a Polars frame, our own rows."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the stream's capsule."""


class Session:
    """A SQL session. `connect` makes one.

    It knows the tables that `lakemark.toml` has names for, and opens one when a statement needs it. Its settings are
    those of the file.

    >>> import lakemark
    >>> session = lakemark.connect()
    >>> _ = session.table(getfixture("flights"), name="flights")
    >>> session.sql("SELECT origin, count(*) AS n FROM flights GROUP BY origin ORDER BY n DESC, origin LIMIT 2")
    origin | n
    -------+---
    EWR    | 10
    JFK    | 10
    """

    def __init__(self) -> None:
        self._inner = _internal.Session()

    def sql(self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> Rows:
        """Runs a statement: a query, `CREATE EXTERNAL TABLE … STORED AS LAKEMARK`, `CREATE INDEX`, `SET` and so on.

        Queries are computed when their rows are read, each time anew; everything else is done when this returns, and
        once. `INSERT`, `REPLACE`, `UPDATE`, `DELETE` and `MERGE INTO` change tables that have a key, and give the
        number of rows. Values that are not known when the statement is written belong into `parameters`. They need no
        quotes, and no value can be taken for SQL.

        >>> import lakemark
        >>> session = lakemark.connect()
        >>> _ = session.table(getfixture("flights"), name="flights")
        >>> session.sql("SELECT count(*) AS n FROM flights WHERE origin = $1 OR origin = $2", ["EWR", "O'Hare"])
        n
        --
        10

        Args:
            text: One SQL statement.
            parameters: Values in the place of `$1`, `$2` and so on, of each `?` in turn, or by name in the place of
                `$name`: anything that Arrow makes a scalar of, dates, decimals, bytes and None among them.

        Returns:
            The rows.

        Raises:
            InvalidInputError: The statement is not valid, or names something that is not there; a parameter is missing
                or has no place, or is no value of Arrow's.
            ConflictError: Somebody changed a row that this statement changes, while it ran; run it again.
        """
        return Rows(self._inner.sql(text, None if parameters is None else _arrow.parameters(parameters)))

    def advise(self, queries: str | Sequence[str]) -> dict[str, Advice]:
        """Says which indexes to build for queries over the tables of this session. Changes nothing.

        A column that tables are joined by counts like a condition: what the other side's own conditions leave of its
        keys is counted.

        >>> import lakemark
        >>> session = lakemark.connect()
        >>> _ = session.table(getfixture("flights"), name="flights")
        >>> list(session.advise("SELECT count(*) FROM flights WHERE origin = 'EWR'"))
        ['flights']

        Args:
            queries: SQL queries: a text with semicolons between them, or a list.

        Returns:
            For each Lakemark table that the queries read, by its name in the session, what `Table.advise` would say.
        """
        return {name: Advice.from_text(json, shown) for name, json, shown in self._inner.advise(text_of(queries))}

    def table(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        store: str | os.PathLike[str] | None = None,
        key: str | Sequence[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        profile: str | None = None,
        version: int | None = None,
    ) -> Table:
        """Opens a table and gives it a name in this session.

        Args:
            path: Path or URL of the table, or its name in `lakemark.toml` or in a catalog.
            name: The name to use in SQL; made from the last part of the path if there is none.
            store: Path or URL for the indexes, as for `Table`.
            key: The column, or columns, that tell the rows apart, as for `Table`.
            storage_options: Options of the object store, as for `Table`.
            profile: The profile that has the credentials, as for `Table`.
            version: A version to read, as for `Table`.

        Returns:
            The table.
        """
        table = Table(path, store, key, storage_options, profile=profile, version=version)
        self.register(_name_of(path) if name is None else name, table)
        return table

    def register(self, name: str, table: Table | ArrowStream) -> None:
        """Gives a table, or rows in memory, a name in this session; whatever had the name before loses it.

        Args:
            name: The name, exactly. SQL folds names to lower case unless they are quoted.
            table: A `Table`, which is read when queries need it, or an Arrow stream, which is read into memory now.
        """
        if isinstance(table, Table):
            self._inner.register_table(name, table._inner)  # noqa: SLF001 - one package
        else:
            self._inner.register_rows(name, table)


def connect() -> Session:
    """Opens a SQL session with an engine of its own inside this process.

    Raises:
        InvalidInputError: A file `lakemark.toml` cannot be understood; the message names the line.
    """
    return Session()


def _name_of(path: str | os.PathLike[str]) -> str:
    """A name for SQL from the last part of a path, without its ending.

    >>> _name_of("/data/Flights-2013.parquet"), _name_of("s3://bucket/lake/orders/"), _name_of("uc://main.sales.trips")
    ('flights_2013', 'orders', 'trips')
    """
    last = PurePath(os.fspath(path).rstrip("/")).name
    stem = last.split(".")[-1 if os.fspath(path).startswith("uc://") else 0]
    name = "".join(letter if letter.isalnum() else "_" for letter in stem.lower()).strip("_")
    if not name:
        raise InvalidInputError(f"{os.fspath(path)!r} gives no name for SQL: pass name=")
    return name

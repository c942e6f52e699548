"""Tables as relations of DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemark._packages import require
from lakemark.engines.opened import opened
from lakemark.exceptions import InvalidInputError

if TYPE_CHECKING:
    import os

    import duckdb

    from lakemark.table import Table

__all__ = ["scan_duckdb"]


def scan_duckdb(
    table: Table | str | os.PathLike[str],
    connection: duckdb.DuckDBPyConnection | None = None,
    *,
    use_index: bool = True,
) -> duckdb.DuckDBPyRelation:
    """A table as a relation of DuckDB, whose conditions and columns are handed down to the indexes.

    DuckDB hands down comparisons with constants, lists and `IS NULL`, and applies whatever else a query has by itself.
    Each query reads the rows that the table has then, in no order.

    >>> import duckdb, lakemark
    >>> flights = lakemark.scan_duckdb(getfixture("flights"), duckdb.connect())
    >>> flights.filter("origin = 'JFK' AND distance > 2000").aggregate("count(*)").fetchall()
    [(3,)]

    Args:
        table: A table, or the path or URL of one.
        connection: The connection that the relation belongs to; by default the one of the module `duckdb`.
        use_index: Whether the indexes are used; the rows are the same without.

    Returns:
        The relation. `create_view` gives it a name in SQL.

    Raises:
        InvalidInputError: It is no table, or no connection.
        MissingPackageError: DuckDB or pyarrow is not installed.
    """
    module = require("duckdb", "scan_duckdb")
    if connection is not None and not isinstance(connection, module.DuckDBPyConnection):
        raise InvalidInputError(f"{type(connection).__name__} is no connection: give one of duckdb.connect()")
    dataset = opened(table).to_pyarrow_dataset(use_index=use_index)
    relation: duckdb.DuckDBPyRelation = (module if connection is None else connection).from_arrow(dataset)
    return relation

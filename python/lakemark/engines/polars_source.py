"""Tables as lazy frames of Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakemark._packages import require
from lakemark.engines.opened import opened

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import polars as pl
    import pyarrow as pa

    from lakemark.rows import Rows
    from lakemark.table import Table

__all__ = ["scan_polars"]

# Rows of a frame, unless Polars asks for another number.
_BATCH_ROWS = 100_000

# The first one that takes sources which may be read once for several uses.
_POLARS = (1, 33)


def scan_polars(table: Table | str | os.PathLike[str], *, use_index: bool = True) -> pl.LazyFrame:
    """A table as a lazy frame, whose conditions, columns and number of rows are handed down to the indexes.

    Polars applies each condition itself as well, so that rows are those that it finds in any other frame. Whenever the
    frame is collected, it has the rows that the table has then, in no order.

    >>> import lakemark, polars as pl
    >>> flights = lakemark.scan_polars(getfixture("flights"))
    >>> flights.filter(pl.col("origin") == "JFK", pl.col("distance") > 2000).select("flight").collect().height
    3

    Args:
        table: A table, or the path or URL of one.
        use_index: Whether the indexes are used; the rows are the same without.

    Returns:
        The lazy frame.

    Raises:
        InvalidInputError: It is no table.
        MissingPackageError: Polars or pyarrow is not installed.
        UnsupportedError: Polars is older than 1.33.
    """
    require("polars", "scan_polars", _POLARS)
    require("pyarrow", "scan_polars")
    import polars as pl
    import pyarrow as pa
    from polars.io.plugins import register_io_source

    source = opened(table)
    columns = pa.schema(source.scan().schema)

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        rows = _rows(source, columns, _Asked(with_columns, predicate, n_rows), use_index=use_index)
        for batches in _grouped(pa.RecordBatchReader.from_stream(rows), max(1, batch_size or _BATCH_ROWS)):
            frame = pl.DataFrame(batches)
            # The first rows are those before any condition.
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame if with_columns is None else frame.select(with_columns)

    return register_io_source(read, schema=pl.DataFrame(columns.empty_table()).schema, is_pure=True)


class _Asked(NamedTuple):
    """What Polars asks a source for."""

    columns: list[str] | None
    predicate: pl.Expr | None
    rows: int | None


def _rows(table: Table, schema: pa.Schema, asked: _Asked, *, use_index: bool) -> Rows:
    """The rows to look at: those that the indexes leave of a condition, or the first ones."""
    from lakemark.engines.polars_expressions import condition_of

    names, text = schema.names, None
    if asked.columns is not None:
        read = {*asked.columns, *(() if asked.predicate is None else asked.predicate.meta.root_names())}
        names = [name for name in names if name in read]
    # Polars takes the first rows first, and of these the ones that satisfy a condition.
    if asked.rows is None and asked.predicate is not None:
        text = condition_of(asked.predicate, schema).text
    return table.scan(text, columns=names, limit=asked.rows, use_index=use_index)


def _grouped(reader: pa.RecordBatchReader, rows: int) -> Iterator[pa.Table]:
    """The batches in tables of about so many rows, and at least one."""
    import pyarrow as pa

    group: list[pa.RecordBatch] = []
    held, is_empty = 0, True
    for batch in reader:
        group.append(batch)
        held += batch.num_rows
        if held >= rows:
            yield pa.Table.from_batches(group, reader.schema)
            group, held, is_empty = [], 0, False
    if group or is_empty:
        yield pa.Table.from_batches(group, reader.schema)

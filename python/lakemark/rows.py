"""Rows on their way out: the result of a scan or of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemark import _pictures
from lakemark.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lakemark import _internal

__all__ = ["Rows"]

_PREVIEW_ROWS = 10


class Rows:
    """Rows that are computed when they are read, each time anew; those of a lookup are at hand.

    It is an Arrow C stream: `pyarrow.table(rows)`, `polars.DataFrame(rows)` and `duckdb.sql("SELECT * FROM rows")`
    read it batch by batch, without a copy and without Lakemark knowing them. An error in the middle of such a
    stream arrives as the reader's own exception with our message; the methods below raise ours.

    >>> import lakemark
    >>> rows = lakemark.Table(getfixture("flights")).scan("origin = 'JFK'", columns=["flight"], limit=2)
    >>> rows.to_arrow().num_rows
    2
    """

    def __init__(self, inner: _internal.Rows | _internal.ArrowTable) -> None:
        self._inner = inner

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema(self._inner.schema())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._inner.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.table(self._inner.collect())

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a `pandas.DataFrame`."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """All rows as a `polars.DataFrame`."""
        import polars as pl

        return pl.DataFrame(self._inner.collect())

    def __repr__(self) -> str:
        return _pictures.text_table(*self._inner.preview(_PREVIEW_ROWS))

    def _repr_html_(self) -> str:
        return _pictures.html_table(*self._inner.preview(_PREVIEW_ROWS))

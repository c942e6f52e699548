"""What callers give for a table."""

from __future__ import annotations

import os

from lakemark.exceptions import InvalidInputError
from lakemark.table import Table

__all__ = ["opened"]


def opened(table: object) -> Table:
    """A table as it is, or the one at a path or URL.

    Raises:
        InvalidInputError: It is none of these.
    """
    if isinstance(table, Table):
        return table
    if isinstance(table, str | os.PathLike):
        return Table(table)
    raise InvalidInputError(f"{type(table).__name__} is no table: give a lakemark.Table, or the path or URL of one")

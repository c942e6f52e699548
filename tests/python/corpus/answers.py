"""Indexing a table, and the answers of a predicate: the ids of the rows, or the class of the error."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import lakemark
from corpus.cases import make_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakemark.reports import IndexKind


# In turn, so that every engine meets indexes that know rows and indexes that know zones.
KINDS: tuple[IndexKind, ...] = ("bitmap", "key", "bloom_tree", "bitmap", "summary")


def create_indexes(folder: Path, columns: list[str]) -> None:
    table = lakemark.Table(folder)
    for column, kind in zip(columns, itertools.cycle(KINDS), strict=False):
        table.create_index(column, using="bitmap" if column in make_table.LISTS else kind, build=False)
    report = table.build(progress=False)
    assert len(report.indexes) == len(columns)


def ids_or_error(scan: Callable[[], lakemark.Rows]) -> list[int] | str:
    try:
        return sorted(scan().to_arrow().column("id").to_pylist())
    except lakemark.LakemarkError as error:
        return type(error).__name__

"""Marking a table, and the answers of a predicate: the ids of the rows, or the class of the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def mark(folder: Path, columns: list[str]) -> None:
    table = lakemark.Table(folder)
    for column in columns:
        table.create_index(column, using="bitmap", build=False)
    report = table.build(progress=False)
    assert len(report.indexes) == len(columns)


def ids_or_error(scan: Callable[[], lakemark.Rows]) -> list[int] | str:
    try:
        return sorted(scan().to_arrow().column("id").to_pylist())
    except lakemark.LakemarkError as error:
        return type(error).__name__

"""What the indexes say about a predicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakemark import _pictures
from lakemark._pictures import GREEN, GREY, ORANGE, Part
from lakemark.reports.described import Described

__all__ = ["ExplainReport", "Leaf"]


@dataclass(frozen=True, slots=True)
class ExplainReport(Described):
    """What the indexes say about a predicate, and what is left to read. `str()` gives it as text.

    Attributes:
        leaves: The predicate's conditions, in the order of the text.
        coverage: Share of the data files for which the indexes narrowed anything or had the whole answer.
        files_total: Data files of the table.
        files_pruned: Data files that need not be opened.
        files_scanned: Data files that are scanned as if there were no indexes.
        row_groups_total: Row groups of the files that are not unknown.
        row_groups_pruned: Row groups among them that need not be read.
        rows_total: Rows of the files that are not unknown.
        rows_exact: Exact rows: they are in the answer without a test.
        rows_rechecked: Rows to be rechecked: they must be read and tested.
        index_reads: Reads of the store.
        index_bytes_read: Bytes of these reads.
        seconds: Wall time.
    """

    leaves: list[Leaf]
    coverage: float
    files_total: int
    files_pruned: int
    files_scanned: int
    row_groups_total: int
    row_groups_pruned: int
    rows_total: int
    rows_exact: int
    rows_rechecked: int
    index_reads: int
    index_bytes_read: int
    seconds: float

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "leaves": [Leaf(**leaf) for leaf in said["leaves"]]}

    def _drawn(self) -> str:
        rows = [
            [
                leaf.text,
                leaf.index or "",
                leaf.encoding or "",
                leaf.reason or "",
                "" if leaf.rows is None else f"{leaf.rows:,}",
            ]
            for leaf in self.leaves
        ]
        columns = [("condition", ""), ("index", ""), ("encoding", ""), ("not answered because", ""), ("rows", "")]
        known_files = self.files_total - self.files_pruned - self.files_scanned
        neither = self.rows_total - self.rows_exact - self.rows_rechecked
        return (
            _pictures.html_table(columns, rows, more=False)
            + _pictures.bar(
                "files",
                [
                    Part("skipped", self.files_pruned, GREY),
                    Part("read in part", known_files, GREEN),
                    Part("scanned", self.files_scanned, ORANGE),
                ],
            )
            + _pictures.bar(
                "row groups",
                [
                    Part("skipped", self.row_groups_pruned, GREY),
                    Part("read", self.row_groups_total - self.row_groups_pruned, GREEN),
                ],
            )
            + _pictures.bar(
                "rows",
                [
                    Part("skipped", neither, GREY),
                    Part("exact", self.rows_exact, GREEN),
                    Part("to recheck", self.rows_rechecked, ORANGE),
                ],
            )
            + f"<p>{self.index_reads:,} reads of the store, {_pictures.human_bytes(self.index_bytes_read)}, "
            f"{self.seconds * 1000:.1f} ms</p>"
        )


@dataclass(frozen=True, slots=True)
class Leaf:
    """How one condition of a predicate was answered.

    Attributes:
        text: The condition.
        column: The column that it is about, if it is about one.
        index: The index that answered it, at least for some files; `partition` for a partition column.
        encoding: The encoding of that index.
        choice: Why `auto` chose that encoding, if it did.
        reason: Why no index answered it, at least for some files: a code such as `no_index`.
        rows: Rows for which it may be true, in the files where an index answered.
    """

    text: str
    column: str | None
    index: str | None
    encoding: str | None
    choice: str | None
    reason: str | None
    rows: int | None

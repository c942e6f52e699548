"""Advice on indexes: which to build for some queries, and what they would save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakemark import _pictures
from lakemark._pictures import GREEN, ORANGE, Part
from lakemark.reports.described import Described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemark.reports.index import Encoding, IndexKind

__all__ = ["Advice", "LayoutHint", "Proposal", "QueryGain", "QueryProblem"]


def text_of(queries: str | Sequence[str]) -> str:
    """Queries as one text. A comment at the end of one of them does not reach the next."""
    return queries if isinstance(queries, str) else "\n; ".join(queries)


@dataclass(frozen=True, slots=True)
class Proposal:
    """An index to build.

    Attributes:
        column: Its column.
        kind: Its kind, as `create_index` takes it.
        encoding: Its encoding.
        reason: Why this kind and encoding.
        values: Distinct values of a segment, about; of the table if it is no bitmap.
        predicted_bytes: Bytes that it will take.
        saved_bytes: Bytes that a query need not read with it, on average over all queries.
        queries: Queries that read less with it.
        include: Columns to include, so that lookups of these read no data.
    """

    column: str
    kind: IndexKind
    encoding: Encoding
    reason: str
    values: int
    predicted_bytes: int
    saved_bytes: int
    queries: int
    include: list[str]


@dataclass(frozen=True, slots=True)
class LayoutHint:
    """Another layout of the data.

    Attributes:
        change: What to change.
        bytes_now: Bytes that all queries read with all indexes.
        bytes_after: The same with the change.
    """

    change: str
    bytes_now: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class QueryGain:
    """What a query reads, predicted.

    Attributes:
        line: Its first line in the text.
        text: The query, in one line.
        bytes_now: Bytes that it reads.
        bytes_after: The same with the indexes proposed.
    """

    line: int
    text: str
    bytes_now: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """A query that could not be looked at.

    Attributes:
        line: Its first line in the text.
        problem: What is wrong.
    """

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class Advice(Described):
    """Which indexes to build, and what they would save. `str()` gives it as text.

    Attributes:
        rows: Rows of the table.
        sampled_rows: Rows that were read for the advice.
        queries: Queries that were looked at; 0 if the standard shapes of predicates were, over every column.
        indexes: Indexes to build, the one that saves most first, each beside those before it.
        unused: Indexes that nothing in the queries can use.
        layout: Other layouts of the data that would save much.
        gains: What each query reads now and with the indexes proposed.
        problems: Queries that could not be looked at.
    """

    rows: int
    sampled_rows: int
    queries: int
    indexes: list[Proposal]
    unused: list[str]
    layout: list[LayoutHint]
    gains: list[QueryGain]
    problems: list[QueryProblem]

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {
            **said,
            "indexes": [Proposal(**index) for index in said["indexes"]],
            "layout": [LayoutHint(**hint) for hint in said["layout"]],
            "gains": [QueryGain(**gain) for gain in said["gains"]],
            "problems": [QueryProblem(**problem) for problem in said["problems"]],
        }

    def _drawn(self) -> str:
        columns = [
            ("column", ""),
            ("kind", ""),
            ("encoding", ""),
            ("values", ""),
            ("predicted", ""),
            ("a query saves", ""),
            ("why", ""),
        ]
        rows = [
            [
                f"{index.column} INCLUDE ({', '.join(index.include)})" if index.include else index.column,
                index.kind,
                index.encoding,
                f"{index.values:,}",
                _pictures.human_bytes(index.predicted_bytes),
                _pictures.human_bytes(index.saved_bytes),
                index.reason,
            ]
            for index in self.indexes
        ]
        indexes = (
            _pictures.html_table(columns, rows, more=False) if rows else "<p>no further index is worth its bytes</p>"
        )
        bars = "".join(
            _pictures.bar(
                f"line {gain.line}: {gain.text}",
                [
                    Part("bytes read with the indexes", min(gain.bytes_after, gain.bytes_now), ORANGE),
                    Part("bytes saved", max(gain.bytes_now - gain.bytes_after, 0), GREEN),
                ],
            )
            for gain in self.gains
        )
        notes = [("no query can use", ", ".join(self.unused))] if self.unused else []
        notes += [("layout", hint.change) for hint in self.layout]
        notes += [(f"line {problem.line}", problem.problem) for problem in self.problems]
        return indexes + bars + (_pictures.definitions(notes) if notes else "")

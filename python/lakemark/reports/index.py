"""An index and how much of its table it covers, and the list of all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from lakemark import _pictures
from lakemark._pictures import GREEN, GREY, Part

__all__ = ["Encoding", "Index", "IndexKind", "Indexes"]

#: The kinds of index that this release has.
IndexKind = Literal["bitmap", "key", "bloom_tree", "summary", "links"]

#: The encodings that it has: seven of bitmaps, then that of `key`, of `bloom_tree`, of `summary` and of `links`.
Encoding = Literal[
    "equality",
    "binary",
    "range",
    "interval",
    "interval-equality",
    "range-equality",
    "binned",
    "packed",
    "filtered",
    "sliced",
    "linked",
]


@dataclass(frozen=True, slots=True)
class Index:
    """An index and how much of the table it covers.

    Kind and encoding are any text: the table may have indexes of a newer release.

    Attributes:
        name: Its name, unique in the table.
        kind: Its kind: `bitmap`, `key`, `bloom_tree`, `summary` or `links`.
        encoding: Which bitmaps the kind keeps: `equality`, `binary`, `range`, `interval`, `interval-equality`,
            `range-equality` or `binned`; `packed` for the kind `key`.
        column: The column that it is on, several with commas.
        columns: Its columns one by one.
        data_type: The column's Arrow type.
        chosen_by: Who chose the encoding: `auto` or `user`.
        reason: Why `auto` chose it.
        predicted_bytes: Bytes that were predicted from a sample when it was created, for the rows that it covers now.
        options: Options that it was created with.
        files_covered: Data files that it covers now.
        files_total: Data files that the table has now.
        coverage: `files_covered / files_total`.
        segments: Sidecar files that it is made of.
        bytes: Bytes of these files.
        rows: Rows that it covers.
    """

    name: str
    kind: str
    encoding: str
    column: str
    columns: tuple[str, ...]
    data_type: str
    chosen_by: Literal["auto", "user"]
    reason: str | None
    predicted_bytes: int | None
    options: dict[str, str]
    files_covered: int
    files_total: int
    coverage: float
    segments: int
    bytes: int
    rows: int

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Index:
        """Makes an index from its JSON form."""
        return cls(**{**values, "columns": tuple(values["columns"]), "options": dict(values["options"])})


class Indexes(list[Index]):
    """The indexes of a table, as a list. `str()` gives them as text, and a notebook draws them.

    >>> print(Indexes([]))
    no indexes
    """

    __slots__ = ()

    def to_dict(self) -> list[dict[str, Any]]:
        """All of it as plain Python values."""
        return [asdict(index) for index in self]

    def _rows(self) -> list[list[str]]:
        return [
            [
                index.name,
                index.kind,
                index.encoding,
                index.column,
                f"{index.files_covered:,} of {index.files_total:,}",
                f"{index.rows:,}",
                _pictures.human_bytes(index.bytes),
                f"{index.chosen_by}: {index.reason}" if index.reason else index.chosen_by,
            ]
            for index in self
        ]

    def __str__(self) -> str:
        return _pictures.text_table(_COLUMNS, self._rows(), more=False) if self else "no indexes"

    def _repr_html_(self) -> str:
        if not self:
            return _pictures.lines(["no indexes"])
        bars = (
            _pictures.bar(
                index.name,
                [
                    Part("files covered", index.files_covered, GREEN),
                    Part("files since the last build", index.files_total - index.files_covered, GREY),
                ],
            )
            for index in self
            if index.files_covered < index.files_total
        )
        return _pictures.html_table(_COLUMNS, self._rows(), more=False) + "".join(bars)


_COLUMNS = [
    ("name", "Utf8"),
    ("kind", "Utf8"),
    ("encoding", "Utf8"),
    ("column", "Utf8"),
    ("files", "Utf8"),
    ("rows", "UInt64"),
    ("size", "Utf8"),
    ("chosen by", "Utf8"),
]

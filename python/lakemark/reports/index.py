"""An index and how much of its table it covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Encoding", "Index", "IndexKind"]

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

"""Where the pages of a Parquet file are, as its footer and its offset index say.

pyarrow writes offset indexes and does not show them. Both are structures of Thrift in its compact protocol, of which
this reads as much as it takes: numbers of fields, lengths and types, whatever the fields are called.
Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

MAGIC = b"PAR1"
# Types of the compact protocol.
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12
LONG_LIST = 15
# Numbers of fields of Parquet's structures.
FOOTER_ROW_GROUPS = 4
ROW_GROUP_COLUMNS, ROW_GROUP_ROWS = 1, 3
CHUNK_METADATA, CHUNK_OFFSET_INDEX, CHUNK_OFFSET_INDEX_LENGTH = 3, 4, 5
METADATA_PATH = 3
OFFSET_INDEX_LOCATIONS = 1
LOCATION_FIRST_ROW = 3


class _Compact:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            part = self._take(1)[0]
            value |= (part & 0x7F) << shift
            shift += 7
            if part < 0x80:
                return value

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int) -> object:
        if kind in (I16, I32, I64):
            return self._signed()
        if kind == BINARY:
            return self._take(self._unsigned())
        if kind in (LIST, SET):
            return self._values()
        if kind == STRUCT:
            return self.struct()
        if kind in (TRUE, FALSE):
            return kind == TRUE
        return self._take({BYTE: 1, DOUBLE: 8}[kind])

    def _values(self) -> list[object]:
        head = self._take(1)[0]
        count, kind = head >> 4, head & 0xF
        if count == LONG_LIST:
            count = self._unsigned()
        # Within a list a truth value is a byte.
        return [self._value(BYTE if kind in (TRUE, FALSE) else kind) for _ in range(count)]

    def struct(self) -> dict[int, Any]:
        """A structure: its values by the numbers of its fields."""
        values: dict[int, Any] = {}
        number = 0
        while (head := self._take(1)[0]) != STOP:
            step = head >> 4
            number = number + step if step else self._signed()
            values[number] = self._value(head & 0xF)
        return values


@dataclass(frozen=True)
class Pages:
    """The pages of one column over all files of a table, numbered in the order of files.

    Attributes:
        first_rows: For each file the row that each of its pages begins with.
    """

    first_rows: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(len(rows) for rows in self.first_rows)

    def of_rows(self, file: int, rows: Iterable[int]) -> set[int]:
        """The numbers of the pages that hold these rows of a file."""
        before = sum(len(rows) for rows in self.first_rows[:file])
        return {before + bisect_right(self.first_rows[file], row) - 1 for row in rows}


def pages_of(files: Sequence[Path], column: str) -> Pages:
    """The pages of a column.

    Raises:
        ValueError: A file is no Parquet file, lacks the column, or has no offset index of it.
    """
    return Pages(tuple(_first_rows(path, column) for path in files))


def _first_rows(path: Path, column: str) -> tuple[int, ...]:
    data = path.read_bytes()
    if data[:4] != MAGIC or data[-4:] != MAGIC:
        raise ValueError(f"{path} is no Parquet file")
    footer_length = int.from_bytes(data[-8:-4], "little")
    footer = _Compact(data[-8 - footer_length : -8]).struct()
    found: list[int] = []
    before = 0
    for group in footer[FOOTER_ROW_GROUPS]:
        chunk = _chunk(group, column, path)
        start = chunk[CHUNK_OFFSET_INDEX]
        index = _Compact(data[start : start + chunk[CHUNK_OFFSET_INDEX_LENGTH]]).struct()
        found.extend(before + location[LOCATION_FIRST_ROW] for location in index[OFFSET_INDEX_LOCATIONS])
        before += group[ROW_GROUP_ROWS]
    return tuple(found)


def _chunk(group: dict[int, Any], column: str, path: Path) -> dict[int, Any]:
    """The part of a row group that a column has."""
    for chunk in group[ROW_GROUP_COLUMNS]:
        if chunk[CHUNK_METADATA][METADATA_PATH] == [column.encode()]:
            if CHUNK_OFFSET_INDEX not in chunk:
                raise ValueError(f"{path} has no offset index of {column}")
            found: dict[int, Any] = chunk
            return found
    raise ValueError(f"{path} has no column {column}")

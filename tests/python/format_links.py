"""A second reader of leaves of links, made from section 9 of docs/format.md alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes that the parameters of key types take, and how many there are.
PARAMETERS = {13: 3, 16: 1, 17: 1, 18: 2, 21: 1}
BITS = {1: 1, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 14: 32, 15: 64, 16: 32, 17: 64, 18: 64}
SIGNED = (2, 3, 4, 5, 14, 15, 16, 17, 18)
NUMBERS = tuple(BITS)
STRING = 19

End = int | bytes | None


class Tools(NamedTuple):
    """What other readers have for cursors."""

    cursor: Callable[[bytes], Any]
    column: Callable[[Any, int], list[int]]
    gaps: Callable[[Any, int], list[int]]
    rows: Callable[[Any, int, tuple[bytes, int, int]], list[list[int]]]


def columns_of(key_type: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The types of the columns of a key of several."""
    assert key_type[0] == 22
    columns, at = [], 1
    while at < len(key_type):
        width = 1 + PARAMETERS.get(key_type[at], 0)
        columns.append(key_type[at : at + width])
        at += width
    return columns


def part_of(end: End, kind: tuple[int, ...]) -> bytes:
    """A column of a key of several columns."""
    if end is None:
        return b"\0"
    if isinstance(end, int):
        bits = BITS[kind[0]]
        least = (1 << 63) - (1 << (bits - 1)) if kind[0] in SIGNED else 0
        return b"\1" + (end - least).to_bytes((bits + 7) // 8, "big")
    return b"\1" + (end if kind[0] == 21 else end.replace(b"\0", b"\0\xff") + b"\0\0")


def check_text(end: End, kind: tuple[int, ...]) -> None:
    """Fails if a string is not UTF-8."""
    if isinstance(end, bytes) and kind[0] == STRING:
        end.decode("utf-8")


class Links:
    """The leaves of a segment of links."""

    def __init__(self, stream: bytes, universe: int, key_type: tuple[int, ...], tools: Tools) -> None:
        self.stream = stream
        self.universe = universe
        self.columns = columns_of(key_type)
        self.tools = tools
        self.predicates: list[End] = []
        assert len(self.columns) in (2, 3)
        assert self.columns[0] == self.columns[-1]

    def read_predicates(self, cursor: Any) -> None:
        for _ in range(cursor.varint()):
            kind = cursor.number(1)
            assert kind in (0, 1)
            is_number = self.columns[1][0] in NUMBERS
            self.predicates.append(None if kind == 0 else cursor.varint() if is_number else cursor.blob())
            check_text(self.predicates[-1], self.columns[1])
        assert len(set(self.predicates)) == len(self.predicates) <= 65535

    def read(self, block: Any) -> list[tuple[int | bytes, list[int]]]:
        """Every link of a leaf with its rows."""
        cursor = self.tools.cursor(self.stream[block.start : block.end])
        count = cursor.varint()
        groups, places = [1] * count, [0] * count
        if len(self.columns) == 3:
            groups = [1 + more for more in self.tools.column(cursor, count)]
            places = self.tools.column(cursor, sum(groups))
        counts = [1 + more for more in self.tools.column(cursor, sum(groups))]
        assert sum(counts) == block.count <= 65536
        nodes = self.ends(cursor, [count])[0]
        lists = self.ends(cursor, counts)
        cursor.end()
        keys = []
        of_groups = zip(places, lists, strict=True)
        for node, number in zip(nodes, groups, strict=True):
            for place, ends in itertools.islice(of_groups, number):
                middle = b"" if len(self.columns) == 2 else part_of(self.predicates[place], self.columns[1])
                keys += [part_of(node, self.columns[0]) + middle + part_of(end, self.columns[0]) for end in ends]
        assert keys[0] == block.key
        assert keys == sorted(set(keys))
        cursor = self.tools.cursor(self.stream[block.postings : block.postings_end])
        rows = self.tools.rows(cursor, len(keys), (self.stream, block.postings, self.universe))
        cursor.end()
        assert sum(len(of_link) for of_link in rows) == block.rows
        return list(zip(keys, rows, strict=True))

    def ends(self, cursor: Any, counts: list[int]) -> list[list[End]]:
        """Lists of nodes."""
        form = cursor.number(1)
        nulls = cursor.packed(len(counts), 1) if form else [0] * len(counts)
        assert form in (0, 1)
        assert any(nulls) == (form == 1)
        left = [count - null for count, null in zip(counts, nulls, strict=True)]
        read = self.numbers if self.columns[0][0] in NUMBERS else self.texts
        found = read(cursor, left)
        return [[None] * null + ends for null, ends in zip(nulls, found, strict=True)]

    def numbers(self, cursor: Any, counts: list[int]) -> list[list[Any]]:
        firsts = iter(self.tools.column(cursor, sum(count > 0 for count in counts)))
        gaps = iter(self.tools.gaps(cursor, sum(max(count - 1, 0) for count in counts)))
        found: list[list[Any]] = []
        for count in counts:
            steps = (gap + 1 for gap in itertools.islice(gaps, max(count - 1, 0)))
            found.append(list(itertools.accumulate(steps, initial=next(firsts))) if count else [])
        return found

    def texts(self, cursor: Any, counts: list[int]) -> list[list[Any]]:
        shared = self.tools.column(cursor, sum(counts))
        rests = self.tools.column(cursor, sum(counts))
        assert sum(shared) + sum(rests) <= 1 << 22
        before, texts = b"", []
        for common, rest in zip(shared, rests, strict=True):
            assert common <= len(before)
            before = before[:common] + cursor.take(rest)
            texts.append(before)
            check_text(before, self.columns[0])
        left = iter(texts)
        found: list[list[Any]] = [list(itertools.islice(left, count)) for count in counts]
        assert all(ends == sorted(set(ends)) for ends in found)
        return found

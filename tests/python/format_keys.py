"""A second reader of keys in leaves that are bytes, made from section 9 of docs/format.md alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from format_links import BITS, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

STRING, BINARY, FIXED, COMPOSITE, DECIMAL = 19, 20, 21, 22, 13
DASHES = (8, 13, 18, 23)


class Tools(NamedTuple):
    """What another reader has for cursors."""

    column: Callable[[Any, int], list[int]]
    gaps: Callable[[Any, int], list[int]]


def bytes_of(kind: tuple[int, ...]) -> int | None:
    """How many bytes a value of a column takes in a key, where all take as many."""
    if kind[0] == DECIMAL:
        return kind[1] // 8
    if kind[0] == FIXED:
        return kind[1]
    if kind[0] in (STRING, BINARY):
        return None
    return (BITS.get(kind[0], {10: 16, 11: 32, 12: 64}.get(kind[0], 0)) + 7) // 8


def wide_varint(cursor: Any) -> int:
    value = cursor.varint()
    assert value < 1 << 128
    return value


def wide_numbers(cursor: Any, count: int) -> list[int]:
    """Packed numbers of up to 128 bits, or Rice codes."""
    width = cursor.number(1)
    if width <= 128:
        return cursor.packed(count, width)
    low = width - 129
    numbers = cursor.packed(count, low)
    byte, left = 0, 0
    for place in range(count):
        high = 0
        while True:
            if left == 0:
                byte, left = cursor.number(1), 8
            bit, byte, left = byte & 1, byte >> 1, left - 1
            if bit:
                break
            high += 1
        numbers[place] |= high << low
    assert byte == 0
    return numbers


def uuid_number(text: bytes) -> int:
    assert len(text) == 36
    assert all(text[place] == ord("-") for place in DASHES)
    digits = text.replace(b"-", b"").decode()
    assert len(digits) == 32
    assert digits == digits.lower()
    return int(digits, 16)


def uuid_text(number: int) -> bytes:
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


class KeyLists:
    """The lists of keys of leaves with keys of one byte type."""

    def __init__(self, key_type: tuple[int, ...], tools: Tools) -> None:
        self.key_type = key_type
        self.tools = tools

    def read(self, cursor: Any, first: bytes, count: int) -> list[int | bytes]:
        """All keys of a list."""
        if count == 1:
            return [first]
        form = cursor.number(1)
        keys = self.texts(cursor, first, count) if form == 0 else self.numbers(cursor, first, count)
        assert form in (0, 1)
        assert len(keys) == count
        assert all(before < after for before, after in itertools.pairwise(keys))
        assert sum(len(key) for key in keys) <= 4194304
        return [*keys]

    def texts(self, cursor: Any, first: bytes, count: int) -> list[bytes]:
        runs = [(cursor.number(1), cursor.number(1)) for _ in range(cursor.number(1))]
        characters = bytes(character for start, more in runs for character in range(start, start + more + 1))
        assert list(characters) == sorted(set(characters))
        shared, lengths = self.tools.column(cursor, count - 1), self.tools.column(cursor, count - 1)
        if runs:
            places = cursor.packed(sum(lengths), (len(characters) - 1).bit_length())
            rests = bytes(characters[place] for place in places)
        else:
            rests = cursor.take(sum(lengths))
        keys, at = [first], 0
        for common, length in zip(shared, lengths, strict=True):
            assert common <= len(keys[-1])
            keys.append(keys[-1][:common] + rests[at : at + length])
            at += length
        return keys

    def widths(self) -> list[int]:
        """The bytes of each number of a key; none of UUIDs."""
        if self.key_type[0] in (STRING, BINARY):
            return []
        kinds = columns_of(self.key_type) if self.key_type[0] == COMPOSITE else [self.key_type]
        widths = [width for kind in kinds if (width := bytes_of(kind)) is not None]
        assert len(widths) == len(kinds)
        assert max(widths) <= 16
        return widths

    def split(self, key: bytes) -> list[int]:
        widths = self.widths()
        if not widths:
            return [uuid_number(key)]
        if self.key_type[0] != COMPOSITE:
            return [int.from_bytes(key, "big")]
        numbers, at = [], 0
        for width in widths:
            is_value = key[at]
            numbers.append(1 + int.from_bytes(key[at + 1 : at + 1 + width], "big") if is_value else 0)
            at += 1 + width * is_value
        assert at == len(key)
        return numbers

    def joined(self, numbers: list[int]) -> bytes:
        widths = self.widths()
        if not widths:
            return uuid_text(numbers[0])
        if self.key_type[0] != COMPOSITE:
            return numbers[0].to_bytes(widths[0], "big")
        parts = zip(numbers, widths, strict=True)
        return b"".join(b"\1" + (number - 1).to_bytes(width, "big") if number else b"\0" for number, width in parts)

    def numbers(self, cursor: Any, first: bytes, count: int) -> list[bytes]:
        head = self.split(first)
        # For each number of a column the place of the one above it.
        tree = [[0] * (cursor.varint() if len(head) > 1 else count)]
        for _ in head[1:]:
            below = self.tools.gaps(cursor, len(tree[-1]))
            tree.append([place for place, more in enumerate(below) for _ in range(more + 1)])
        assert len(tree[-1]) == count
        columns = [
            self.column(cursor, above, number, place > 0)
            for place, (above, number) in enumerate(zip(tree, head, strict=True))
        ]
        keys = []
        for key in range(count):
            place, row = key, []
            for above, numbers in zip(reversed(tree), reversed(columns), strict=True):
                row.append(numbers[place])
                place = above[place]
            keys.append(self.joined(row[::-1]))
        return keys

    def column(self, cursor: Any, above: list[int], head: int, is_below: bool) -> list[int]:
        begins = [one != other for one, other in itertools.pairwise(above)]
        header = wide_varint(cursor) if is_below else 0
        base, is_apart = head - header // 2, header % 2 == 1
        firsts = iter(wide_numbers(cursor, sum(begins)) if is_apart else [])
        steps = iter(wide_numbers(cursor, len(begins) - sum(begins) * is_apart))
        numbers = [head]
        for begin in begins:
            step = next(firsts) if begin and is_apart else next(steps)
            numbers.append(base + step if begin else numbers[-1] + 1 + step)
        return numbers

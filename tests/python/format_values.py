"""Blocks of values and postings in the second reader, made from sections 5 to 7 of docs/format.md alone."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from format_container import LIST, Cursor

BYTE_TYPES = (19, 20, 21, 22)
DECIMAL = 13


def elias_fano(cursor: Cursor, count: int, below: int) -> list[int]:
    low_bits = max((below // count).bit_length() - 1, 0)
    low = cursor.packed(count, low_bits)
    high = cursor.packed(count + (below >> low_bits), 1)
    ones = [position for position, bit in enumerate(high) if bit]
    assert len(ones) == count
    return [(position - i) << low_bits | low[i] for i, position in enumerate(ones)]


def posting_block(cursor: Cursor, count: int, universe: int) -> list[int]:
    form = cursor.number(1)
    if form == 0:
        return elias_fano(cursor, count, universe)
    if form == 3:
        rows: list[int] = []
        end = 0
        for _ in range(cursor.varint()):
            first = end + cursor.varint()
            end = first + cursor.varint()
            rows += range(first, end)
        return rows
    base, span = cursor.varint(), cursor.varint()
    if form == 1:
        return [base + row for row in elias_fano(cursor, count, span)]
    assert form == 2
    return [base + row for row, bit in enumerate(cursor.packed(span, 1)) if bit]


def posting(data: bytes, count: int, universe: int) -> list[int]:
    cursor = Cursor(data)
    rows: list[int] = []
    while len(rows) < count:
        block = min(count - len(rows), 4096)
        rows += posting_block(cursor, block, universe)
    cursor.end()
    assert len(rows) == count
    assert all(a < b for a, b in itertools.pairwise(rows))
    assert not rows or rows[-1] < universe
    return rows


def has_number_keys(key_type: tuple[int, ...]) -> bool:
    if key_type[0] == LIST:
        return has_number_keys(key_type[1:])
    return key_type[0] not in BYTE_TYPES and not (key_type[0] == DECIMAL and key_type[1] > 64)


def column_of(cursor: Cursor, count: int) -> list[int]:
    least = cursor.varint()
    return [least + number for number in cursor.packed(count, cursor.number(1))]


def keys_from(cursor: Cursor, first: int | bytes, count: int) -> list[int | bytes]:
    """A key and those that follow it, packed or front coded."""
    keys: list[int | bytes] = [first]
    if isinstance(first, int):
        for gap in cursor.packed(count - 1, cursor.number(1)):
            first += gap + 1
            keys.append(first)
    else:
        for _ in range(count - 1):
            first = first[: cursor.varint()] + cursor.blob()
            keys.append(first)
    return keys


def gaps_of(cursor: Cursor, count: int) -> list[int]:
    """Packed gaps or Rice codes."""
    width = cursor.number(1)
    if width <= 64:
        return cursor.packed(count, width)
    low = width - 65
    gaps = cursor.packed(count, low)
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
        gaps[place] |= high << low
    assert byte == 0
    return gaps


def value_block(data: bytes, first: int | bytes) -> list[tuple[int | bytes, int, int]]:
    """Key, rows and posting length of each value."""
    cursor = Cursor(data)
    count = cursor.varint()
    keys = keys_from(cursor, first, count)
    columns = []
    for _ in range(2):
        least = cursor.varint()
        columns.append([least + number for number in cursor.packed(count, cursor.number(1))])
    cursor.end()
    return list(zip(keys, *columns, strict=True))


# Key, rows, and the posting's offset and length.
Found = tuple[int | bytes, int, int, int]


@dataclass
class Block:
    """Where a block and its postings are."""

    key: int | bytes
    count: int
    rows: int
    postings: int
    postings_end: int
    start: int
    end: int


def read_blocks(cursor: Cursor, key_type: tuple[int, ...]) -> tuple[int, list[Block], int | bytes]:
    """The number of values, every block, and the largest key."""
    value_count = cursor.varint()
    blocks: list[Block] = []
    key: int | bytes = 0
    place = 64
    for _ in range(cursor.varint()):
        key = key + cursor.varint() if isinstance(key, int) and has_number_keys(key_type) else cursor.blob()
        count = cursor.varint()
        rows = count + cursor.varint()
        postings = place + cursor.zigzag()
        postings_end = postings + cursor.varint()
        start = postings_end + cursor.zigzag()
        place = start + cursor.varint()
        blocks.append(Block(key, count, rows, postings, postings_end, start, place))
    most: int | bytes = 0
    if blocks:
        most = cursor.varint() if has_number_keys(key_type) else cursor.blob()
    return value_count, blocks, most


def read_values(stream: bytes, blocks: list[Block]) -> list[Found]:
    """Every value."""
    found: list[Found] = []
    for block in blocks:
        entries = value_block(stream[block.start : block.end], block.key)
        assert (len(entries), sum(entry[1] for entry in entries)) == (block.count, block.rows)
        postings = block.postings
        for value, value_rows, length in entries:
            found.append((value, value_rows, postings, length))
            postings += length
        assert postings == block.postings_end
    return found

"""Bins and coarse levels in the second reader, made from sections 5 and 8 of docs/format.md alone."""

from __future__ import annotations

import itertools

from format_container import Cursor
from format_values import Block, Found, column_of, posting

ENCODINGS = {
    1: ("equality", True, None),
    2: ("binary", False, "slices"),
    3: ("range", False, "range"),
    4: ("interval", False, "interval"),
    5: ("interval-equality", True, "interval"),
    6: ("range-equality", True, "range"),
    7: ("binned", False, None),
    8: ("packed", False, None),
}


def bitmaps_of(level: str, bins: int) -> list[set[int]]:
    """The bins of each bitmap of a coarse level."""
    every = range(bins)
    if bins <= 1:
        return []
    if level == "slices":
        return [{place for place in every if place >> bit & 1} for bit in range((bins - 1).bit_length())]
    if level == "range":
        return [set(range(bitmap + 1)) for bitmap in range(bins - 1)]
    return [set(range(bitmap, bitmap + bins // 2)) for bitmap in range((bins + 1) // 2)]


def rows_of_bins(level: str, bins: int, bitmaps: list[list[int]], valued: list[int]) -> list[list[int]]:
    """The rows of each bin: those that are in its bitmaps and in no other."""
    held = bitmaps_of(level, bins)
    assert len(held) == len(bitmaps)
    places = {frozenset(j for j, of_bitmap in enumerate(held) if place in of_bitmap): place for place in range(bins)}
    assert len(places) == bins
    rows: list[list[int]] = [[] for _ in range(bins)]
    sets = [set(bitmap) for bitmap in bitmaps]
    for row in valued:
        rows[places[frozenset(j for j, bitmap in enumerate(sets) if row in bitmap)]].append(row)
    assert all(bitmap <= set(valued) for bitmap in sets)
    return rows


def read_bins(
    stream: bytes, blocks: list[Block], orders: list[int], universe: int
) -> list[tuple[int | bytes, list[int]]]:
    """Every value with its rows, from bins."""
    values: dict[int, list[int]] = {}
    for block, order_bytes in zip(blocks, orders, strict=True):
        cursor = Cursor(stream[block.start : block.end])
        count = cursor.varint()
        gaps = [-1, *cursor.packed(count - 1, cursor.number(1))]
        spreads = cursor.packed(count, cursor.number(1))
        columns = [column_of(cursor, count) for _ in range(4)]
        cursor.end()
        assert isinstance(block.key, int)
        high, posting_at, order_at = block.key, block.postings, block.postings_end
        total = 0
        for gap, spread, keys, surplus, length, order in zip(gaps, spreads, *columns, strict=True):
            low = high + gap + 1
            high = low + spread + keys - 1
            body = Cursor(stream[posting_at : posting_at + length])
            posting_at += length
            rows = keys + surplus
            if keys > 1 and order == 0:
                entries = ramps(body, low, rows)
            else:
                held = posting(body.data, rows, universe)
                of_order = Cursor(stream[order_at : order_at + order])
                entries = ordered(of_order, low, held) if keys > 1 else [(low, row) for row in held]
            order_at += order
            total += rows
            assert entries == sorted(set(entries))
            assert (entries[0][0], entries[-1][0], len({key for key, _ in entries})) == (low, high, keys)
            assert len({row for _, row in entries}) == rows
            for key, row in entries:
                values.setdefault(key, []).append(row)
        assert (posting_at, order_at - block.postings_end, total) == (block.postings_end, order_bytes, block.rows)
    return list(values.items())


def ramps(cursor: Cursor, key: int, count: int) -> list[tuple[int, int]]:
    """The entries of a bin, from its ramps."""
    entries: list[tuple[int, int]] = []
    row = 0
    while len(entries) < count:
        key += cursor.varint()
        more = cursor.varint()
        key_step, row_step = (cursor.varint(), cursor.zigzag()) if more else (0, 0)
        row += cursor.zigzag()
        entries += [(key + i * key_step, row + i * row_step) for i in range(more + 1)]
        key, row = entries[-1]
    cursor.end()
    return entries


def ordered(cursor: Cursor, low: int, held: list[int]) -> list[tuple[int, int]]:
    """The entries of a bin, from its order."""
    width = cursor.number(1)
    sizes = [min(1024, len(held) - start) for start in range(0, len(held), 1024)]
    heads = []
    for number in range(len(sizes)):
        low += cursor.varint() if number else 0
        heads.append((low, cursor.number(1)))
    ranks = cursor.packed(len(held), width) if width else list(range(len(held)))
    keys = []
    for (first, gap_width), size in zip(heads, sizes, strict=True):
        keys += itertools.accumulate(cursor.packed(size - 1, gap_width), initial=first)
    cursor.end()
    return [(key, held[rank]) for key, rank in zip(keys, ranks, strict=True)]


RowSpace = tuple[int, list[tuple[str, int, list[int]]], list[list[int]]]


def read_levels(
    cursor: Cursor, stream: bytes, code: int, values_up_to: tuple[int, list[Found]], space: RowSpace
) -> tuple[str, list[tuple[int | bytes, list[int]]]]:
    """The encoding, and the rows of each value from the levels that it has."""
    universe, files, lists = space
    place, found = values_up_to
    encoding, fine, level = ENCODINGS[code]
    sizes = cursor.varints() if encoding.endswith("-equality") else [1] * len(found)
    assert sum(sizes) == len(found)
    bitmaps = []
    for _ in range(len(bitmaps_of(level, len(sizes))) if level else 0):
        offset = place + cursor.zigzag()
        place = offset + cursor.varint()
        bitmaps.append(posting(stream[offset:place], cursor.varint(), universe))
    values: list[tuple[int | bytes, list[int]]] = []
    if fine:
        for value, count, offset, length in found:
            values.append((value, posting(stream[offset : offset + length], count, universe)))
    if level is None:
        return encoding, values
    every = [row for _, base, row_groups in files for row in range(base, base + sum(row_groups))]
    without = {*lists[0], *lists[1]}
    bins = rows_of_bins(level, len(sizes), bitmaps, [row for row in every if row not in without])
    if fine:
        ends = list(itertools.accumulate(sizes, initial=0))
        for bin_rows, (start, end) in zip(bins, itertools.pairwise(ends), strict=True):
            assert bin_rows == sorted(row for _, rows in values[start:end] for row in rows)
    else:
        values = [(entry[0], rows) for entry, rows in zip(found, bins, strict=True)]
        assert [len(rows) for rows in bins] == [entry[1] for entry in found]
    return encoding, values

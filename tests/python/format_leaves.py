"""Leaves in the second reader, with what rides along, made from section 9 of docs/format.md alone."""

from __future__ import annotations

import itertools

from format_container import Cursor
from format_keys import KeyLists, Tools
from format_values import Block, column_of, gaps_of, has_number_keys, keys_from, posting


class Leaves:
    """The leaves of a packed tree, and what rides along with their rows."""

    def __init__(self, stream: bytes, universe: int, key_type: tuple[int, ...], riding: list[tuple[int, ...]]) -> None:
        self.stream = stream
        self.universe = universe
        self.lists = KeyLists(key_type, Tools(column_of, gaps_of))
        self.riding = riding
        self.carried: dict[int, list[int | bytes | None]] = {}

    def read(self, block: Block) -> list[tuple[int | bytes, list[int]]]:
        """Every key of a leaf with its rows."""
        cursor = Cursor(self.stream[block.start : block.end])
        # The directory has what tells the first key from those before it.
        first = block.key if isinstance(block.key, int) else block.key + cursor.blob()
        count = cursor.varint()
        heads = keys_from(cursor, first, count) if isinstance(first, int) else self.lists.read(cursor, first, count)
        counts = column_of(cursor, count)
        lengths = column_of(cursor, count)
        assert sum(counts) == block.count
        found = []
        for head, keys, length in zip(heads, counts, lengths, strict=True):
            part = Cursor(cursor.take(length))
            of_segment = numbers_from(part, head, keys) if isinstance(head, int) else self.lists.read(part, head, keys)
            rows = rows_of_keys(part, keys, (self.stream, block.start, self.universe))
            held = list(zip(of_segment, rows, strict=True))
            if self.riding:
                self.carry(part, [rows for _, rows in held])
            part.end()
            found += held
        cursor.end()
        assert sum(len(rows) for _, rows in found) == block.rows
        assert all(before[0] < after[0] for before, after in itertools.pairwise(found))
        return found

    def below(self, page: Block) -> list[Block]:
        """The leaves of an inner page."""
        cursor = Cursor(self.stream[page.start : page.end])
        count = cursor.varint()
        assert 1 <= count <= 4096
        first = page.key
        keys = numbers_from(cursor, first, count) if isinstance(first, int) else self.lists.texts(cursor, first, count)
        values = column_of(cursor, count)
        surplus, postings = gaps_of(cursor, count), gaps_of(cursor, count)
        gaps, lengths = column_of(cursor, count), column_of(cursor, count)
        cursor.end()
        leaves, place = [], page.postings
        for number, key in enumerate(keys):
            postings_end = place + postings[number]
            start = postings_end + gaps[number]
            rows = values[number] + surplus[number]
            end = start + lengths[number]
            leaves.append(Block(key, values[number], rows, place, postings_end, start, end))
            place = end
        assert place == page.postings_end
        assert (sum(values), sum(leaf.rows for leaf in leaves)) == (page.count, page.rows)
        return leaves

    def carry(self, cursor: Cursor, held: list[list[int]]) -> None:
        """What rides along with an embedded segment."""
        which = cursor.number(1)
        rides = bits_of(cursor, len(held)) if which == 2 else [which == 1] * len(held)
        if which == 0:
            return
        rows = [row for rows, does in zip(held, rides, strict=True) if does for row in rows]
        assert all(len(rows) <= 1024 for rows, does in zip(held, rides, strict=True) if does)
        columns = [values_of(cursor, kind, len(rows)) for kind in self.riding]
        for place, row in enumerate(rows):
            self.carried[row] = [column[place] for column in columns]


def bits_of(cursor: Cursor, count: int) -> list[bool]:
    data = cursor.take((count + 7) // 8)
    bits = int.from_bytes(data, "little")
    assert bits < 1 << count
    return [bool(bits >> place & 1) for place in range(count)]


def values_of(cursor: Cursor, kind: tuple[int, ...], count: int) -> list[int | bytes | None]:
    """The values of a column that rides along; the numbers are those of keys."""
    form = cursor.number(1)
    if form == 1:
        return [None] * count
    nulls = bits_of(cursor, count) if form == 2 else [False] * count
    left = nulls.count(False)
    values = iter(column_of(cursor, left) if has_number_keys(kind) else texts_of(cursor, left))
    return [None if is_null else next(values) for is_null in nulls]


def texts_of(cursor: Cursor, count: int) -> list[int | bytes]:
    if cursor.number(1) == 0:
        return plain_texts(cursor, count)
    different = cursor.varint()
    known = plain_texts(cursor, different)
    return [known[place] for place in cursor.packed(count, (different - 1).bit_length())]


def plain_texts(cursor: Cursor, count: int) -> list[int | bytes]:
    begin = cursor.blob()
    return [begin + cursor.take(length) for length in column_of(cursor, count)]


def numbers_from(cursor: Cursor, head: int, count: int) -> list[int | bytes]:
    """The keys of an embedded segment that are numbers."""
    return list(itertools.accumulate((gap + 1 for gap in gaps_of(cursor, count - 1)), initial=head))


def rows_of_keys(cursor: Cursor, count: int, context: tuple[bytes, int, int]) -> list[list[int]]:
    """The rows of each key, whose long postings end where the context says."""
    stream, start, universe = context
    rows = [1 + surplus for surplus in column_of(cursor, count)]
    form = cursor.number(1)
    held: list[list[int]] = []
    if form == 0:
        first = cursor.varint()
        for number in rows:
            held.append(list(range(first, first + number)))
            first += number
    elif form == 1:
        firsts = column_of(cursor, count)
        held = [list(range(first, first + number)) for first, number in zip(firsts, rows, strict=True)]
    elif form == 3:
        listed = iter(column_of(cursor, sum(rows)))
        held = [list(itertools.islice(listed, number)) for number in rows]
        assert all(before < after for numbers in held for before, after in itertools.pairwise(numbers))
    else:
        assert form == 2
        places = column_of(cursor, count)
        offsets = [cursor.varint() if place % 2 else None for place in places]
        for place, offset, number in zip(places, offsets, rows, strict=True):
            if offset is None:
                data = cursor.take(place // 2)
            else:
                data = stream[offset : offset + place // 2]
                assert offset + place // 2 <= start
            held.append(posting(data, number, universe))
    assert all(number < universe for numbers in held for number in numbers)
    return held

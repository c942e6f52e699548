"""A second reader of Lakemark's files, made from docs/format.md alone: slow, plain, and it believes nothing."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field

from format_keys import KeyLists
from format_keys import Tools as KeyTools
from format_links import Links, Tools
from format_updates import Log, LogReader, PositionMap, read_position_map_body
from format_zones import Zone, read_zones

MAGIC = b"LAKEMARK"
VERSION = 6
BYTE_TYPES = (19, 20, 21, 22)
LIST = 23
HASHED = 24
DECIMAL = 13


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Cursor:
    """Fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        piece = self.data[self.at : self.at + length]
        assert len(piece) == length, "cut short"
        self.at += length
        return piece

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def signed(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little", signed=True)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert byte or shift == 7, "not the shortest form"
                return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def blob(self) -> bytes:
        return self.take(self.varint())

    def string(self) -> str:
        return self.blob().decode()

    def varints(self) -> list[int]:
        return [self.varint() for _ in range(self.varint())]

    def packed(self, count: int, width: int) -> list[int]:
        bits = int.from_bytes(self.take((count * width + 7) // 8), "little")
        return [bits >> (i * width) & ((1 << width) - 1) for i in range(count)]

    def key_type(self) -> tuple[int, ...]:
        code = self.number(1)
        if code == 22:
            return (code, *(field for _ in range(self.varint()) for field in self.key_type()))
        if code == LIST:
            return (code, *self.key_type())
        if code == HASHED:
            return (code, self.number(1), *self.key_type())
        widths = {13: (2, 1, 1), 16: (1,), 17: (1,), 18: (1, 1), 21: (4,)}.get(code, ())
        return (code, *(self.number(width) for width in widths))

    def left(self) -> int:
        return len(self.data) - self.at

    def end(self) -> None:
        assert self.at == len(self.data), "bytes left over"


def open_container(data: bytes) -> tuple[int, bytes, bytes]:
    """The content kind, the stream and the directory, with every checksum verified."""
    trailer = data[-64:]
    fields = struct.unpack("<QQQII16sBBHI8s", trailer)
    stream_length, offset, file_length, length, directory_crc, file_id, kind, reserved, version, crc, magic = fields
    assert (magic, version, reserved, file_length) == (MAGIC, VERSION, 0, len(data))
    assert crc == crc32c(file_id + struct.pack("<Q", 2**64 - 2) + trailer[:52])
    assert offset == stream_length + 4 * -(-stream_length // 4092)
    assert file_length == offset + length + 64
    stream = b""
    for number, start in enumerate(range(0, offset, 4096)):
        page = data[start : min(start + 4096, offset)]
        assert crc32c(file_id + struct.pack("<Q", number) + page[:-4]) == int.from_bytes(page[-4:], "little")
        stream += page[:-4]
    directory = data[offset : offset + length]
    assert directory_crc == crc32c(file_id + b"\xff" * 8 + directory)
    assert stream[:64] == MAGIC + bytes([VERSION, 0, kind]) + bytes(5) + file_id + bytes(32)
    return kind, stream, directory


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


@dataclass
class Segment:
    """All that a segment says."""

    column: str
    key_type: tuple[int, ...]
    universe: int
    files: list[tuple[str, int, list[int]]]
    nulls: list[int]
    opaque: list[int]
    values: list[tuple[int | bytes, list[int]]]
    encoding: str = "equality"
    zones: list[Zone] = field(default_factory=list)
    riding: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    # The values of the columns that ride along, by row.
    carried: dict[int, list[int | bytes | None]] = field(default_factory=dict)


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
# Those that do not know which rows hold which value.
ZONED = {9: "filtered", 10: "sliced"}
LINKED = 11


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


def has_number_keys(key_type: tuple[int, ...]) -> bool:
    if key_type[0] == LIST:
        return has_number_keys(key_type[1:])
    return key_type[0] not in BYTE_TYPES and not (key_type[0] == DECIMAL and key_type[1] > 64)


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


def read_segment(data: bytes) -> Segment:
    kind, stream, directory = open_container(data)
    assert kind == 1
    cursor = Cursor(directory)
    cursor.take(16)
    column, key_type, universe = cursor.string(), cursor.key_type(), cursor.varint()
    files = []
    lowest = 0
    for _ in range(cursor.varint()):
        path, base, row_groups = cursor.string(), 64 * cursor.varint() + lowest, cursor.varints()
        cursor.take(16)
        files.append((path, base, row_groups))
        lowest = -(-(base + sum(row_groups)) // 64) * 64
    lists = []
    for _ in range(2):
        offset, length, count = cursor.varint(), cursor.varint(), cursor.varint()
        lists.append(posting(stream[offset : offset + length], count, universe))
    value_count, blocks, most = read_blocks(cursor, key_type)
    code = cursor.number(1)
    if code in ZONED:
        zones = read_zones(cursor, stream, has_number_keys(key_type), ZONED[code] == "sliced")
        cursor.end()
        assert (blocks, value_count) == ([], sum(zone.keys for zone in zones))
        assert sum(zone.rows for zone in zones) == sum(sum(row_groups) for *_, row_groups in files)
        return Segment(column, key_type, universe, files, lists[0], lists[1], [], ZONED[code], zones)
    if code == LINKED:
        links = Links(stream, universe, key_type, Tools(Cursor, column_of, gaps_of, rows_of_keys))
        links.read_predicates(cursor)
        encoding, values = "linked", [entry for block in blocks for entry in links.read(block)]
        assert not values or values[-1][0] == most
    elif ENCODINGS[code][0] == "binned":
        orders = [cursor.varint() for _ in blocks]
        encoding, values = "binned", read_bins(stream, blocks, orders, universe)
        assert not values or values[-1][0] == most
    elif ENCODINGS[code][0] == "packed":
        are_inner = cursor.number(1)
        assert are_inner in ((0, 1) if blocks else (0,))
        riding = [(cursor.string(), cursor.key_type()) for _ in range(cursor.varint())]
        leaves = Leaves(stream, universe, key_type, [kind for _, kind in riding])
        if are_inner:
            blocks = [leaf for page in blocks for leaf in leaves.below(page)]
        values = [entry for block in blocks for entry in leaves.read(block)]
        assert not values or values[-1][0] == most
        assert len(values) == value_count
        assert all(before[0] < after[0] for before, after in itertools.pairwise(values))
        cursor.end()
        segment = Segment(column, key_type, universe, files, lists[0], lists[1], values, "packed")
        segment.riding, segment.carried = riding, leaves.carried
        return segment
    else:
        found = read_values(stream, blocks)
        assert not found or found[-1][0] == most
        encoding, values = read_levels(
            cursor, stream, code, (blocks[-1].end if blocks else 64, found), (universe, files, lists)
        )
    assert len(values) == value_count
    cursor.end()
    return Segment(column, key_type, universe, files, lists[0], lists[1], values, encoding)


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


def column_of(cursor: Cursor, count: int) -> list[int]:
    least = cursor.varint()
    return [least + number for number in cursor.packed(count, cursor.number(1))]


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


class Leaves:
    """The leaves of a packed tree, and what rides along with their rows."""

    def __init__(self, stream: bytes, universe: int, key_type: tuple[int, ...], riding: list[tuple[int, ...]]) -> None:
        self.stream = stream
        self.universe = universe
        self.lists = KeyLists(key_type, KeyTools(column_of, gaps_of))
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


def read_log(data: bytes, log_id: bytes, first: int) -> Log:
    return LogReader(data, log_id, first, (crc32c, Cursor)).read()


def read_position_map(data: bytes) -> PositionMap:
    kind, stream, directory = open_container(data)
    assert (kind, len(stream)) == (3, 64)
    return read_position_map_body(Cursor(directory), posting)

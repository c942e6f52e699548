"""A second reader of Lakemark's files, made from docs/format.md alone: slow, plain, and it believes nothing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from format_container import Cursor, crc32c, open_container
from format_leaves import Leaves, rows_of_keys
from format_levels import ENCODINGS, read_bins, read_levels
from format_links import Links, Tools
from format_updates import Log, LogReader, PositionMap, read_position_map_body
from format_values import column_of, gaps_of, has_number_keys, posting, read_blocks, read_values
from format_zones import Zone, read_zones

# Those that do not know which rows hold which value.
ZONED = {9: "filtered", 10: "sliced"}
LINKED = 11


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


def read_log(data: bytes, log_id: bytes, first: int) -> Log:
    return LogReader(data, log_id, first, (crc32c, Cursor)).read()


def read_position_map(data: bytes) -> PositionMap:
    kind, stream, directory = open_container(data)
    assert (kind, len(stream)) == (3, 64)
    return read_position_map_body(Cursor(directory), posting)

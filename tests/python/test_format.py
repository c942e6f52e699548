"""What Lakemark writes is what docs/format.md says: a second reader, made from that page, reads it."""

from __future__ import annotations

import datetime as dt
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow.parquet as pq
import pytest

from format_levels import ENCODINGS
from format_manifests import (
    Edit,
    File,
    Root,
    expanded,
    open_checkpoint,
    open_store,
    read_edit,
    read_piece,
    read_root,
)
from format_reader import ZONED, Segment, read_log, read_position_map, read_segment
from format_updates import Publication, Resolved, Run
from lakemark.reports import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Judged

GOLDEN = Path(__file__).parents[1] / "golden" / "v6"
BAD = Path(__file__).parents[1] / "bad"
SIGN = 1 << 63


def key_of(value: Any) -> int | bytes:
    """The key of section 4 of the format."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value + SIGN
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days + SIGN
    if isinstance(value, float):
        bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
        return bits ^ (2**64 - 1) if bits & SIGN else bits | SIGN
    return str(value).encode()


def test_golden_segments_are_read_by_the_second_reader() -> None:
    segments = (path for path in GOLDEN.glob("*.lmx") if not path.name.startswith("position-map"))
    read = {path.name: read_segment(path.read_bytes()) for path in segments}
    assert len(read) == 26
    assert read["empty.lmx"] == Segment("c", (19,), 0, [], [], [], [])
    numbers = read["numbers.lmx"]
    assert numbers.files == [("part-0.parquet", 0, [10, 6]), ("part-1.parquet", 64, [4])]
    assert (numbers.nulls, numbers.opaque) == ([0, 15], [64])
    values = [(-(2**31), [1]), (-7, [2, 3, 4, 5]), (0, [6, 8, 10, 12, 14]), (1, [7, 9, 11, 13, 65])]
    assert numbers.values == [(key_of(value), rows) for value, rows in [*values, (2**31 - 1, [66, 67])]]
    for encoding in ("binary", "range", "interval", "interval-equality", "range-equality"):
        encoded = read[f"{encoding}.lmx"]
        assert (encoded.encoding, encoded.values) == (encoding, numbers.values)
    bins = read["binned.lmx"]
    assert (bins.encoding, bins.nulls, bins.opaque) == ("binned", [44], [72])
    mixed = [(-90, [3, 70]), (-80, [1]), (-72, [64, 65, 66]), (-50, [0, 2])]
    counted = [(10 + 3 * row, [4 + row]) for row in range(40)]
    assert bins.values == [(key_of(value), rows) for value, rows in [*mixed, *counted, (200, [67, 68, 69, 71])]]
    names = [(f"user/{n * 7:03}@example".encode(), [49 - n] if n < 50 else [n, n + 15]) for n in range(65)]
    assert read["packed-strings.lmx"].values == names
    pairs = read["packed-composite.lmx"]
    assert (pairs.column, pairs.key_type, pairs.opaque) == ("day\1name", (22, 3, 19), [4])
    assert pairs.values == [
        (b"\0" + b"\1a\0\0", [3]),
        (b"\1\x7f\xff" + b"\1\0\0", [1]),
        (b"\1\x7f\xff" + b"\1\0\xff\0\0", [0]),
        (b"\1\x81\x2c" + b"\1z\0\0", [2]),
    ]
    riders = read["covering.lmx"]
    names_of_riders = ["customer", "amount", "price", "paid", "at"]
    assert riders.riding == list(zip(names_of_riders, [(19,), (13, 128, 10, 2), (12,), (1,), (18, 2, 1)], strict=True))
    assert sorted(riders.carried) == [*range(21), 22, 64, 65, 66]
    customers = ["Müller".encode(), b"Meier", None, b""]
    for row, values in riders.carried.items():
        amount = (row * 100 - 1000 + (1 << 127)).to_bytes(16, "big")
        at = 1_700_000_000_000_000 + row + SIGN if row >= 64 else None
        nan = 0xFFF8_0000_0000_0123 ^ (2**64 - 1)
        price = [key_of(1.5), key_of(-0.0), key_of(0.0), key_of(float("-inf")), nan][row % 5]
        assert values == [customers[row % 4], amount, price, int(row % 3 == 0), at]
    lists = read["lists.lmx"]
    assert (lists.key_type, lists.nulls, lists.opaque) == ((23, 19), [2], [5])
    tags = {"": [6], "new": [0, 1, 3, 6], "old": [0, 1, 3, 6], "red": [1]}
    assert lists.values == [(tag.encode(), rows) for tag, rows in tags.items()]
    strings = read["strings.lmx"].values
    assert [key for key, _ in strings] == [text.encode() for text in ("", "Berlin", "Bern", "Berne", "Zürich")]
    pages = read["pages.lmx"]
    assert len(pages.nulls) + sum(len(rows) for _, rows in pages.values) == pages.universe == 3 << 16


def test_golden_packed_trees_are_read_by_the_second_reader() -> None:
    names = ("packed", "packed-columns", "packed-uuids", "packed-hashes", "packed-inner", "packed-inner-columns")
    read = {f"{name}.lmx": read_segment((GOLDEN / f"{name}.lmx").read_bytes()) for name in names}
    assert read["packed-inner.lmx"].values == read["packed.lmx"].values
    assert read["packed-inner-columns.lmx"].values == read["packed-columns.lmx"].values
    packed = read["packed.lmx"]
    assert (packed.encoding, packed.nulls[0], packed.opaque) == ("packed", 192, [202])
    assert packed.values[:192] == [(key_of(2 * row), [row]) for row in range(192)]
    assert packed.values[192:201] == [(key_of(392 - place), [192 + place]) for place in range(9, 0, -1)]
    many = [256 + 5 * row + row % 3 for row in range(800)]
    others = [row for row in range(256, 4352) if row not in many]
    pairs = [(key_of(2_000_000 + n), [others[12 + n], others[512 + n]]) for n in range(10)]
    assert packed.values[201:] == [(key_of(1000), others[:12]), (key_of(1_000_000), many), *pairs]
    days = read["packed-columns.lmx"]
    assert (days.column, days.key_type, len(days.values)) == ("customer\1day", (22, 5, 14), 13)
    day = (2**31 + 19_002).to_bytes(4, "big")
    assert days.values[4] == (b"\1\x80" + bytes(6) + b"\x11\1" + day, [1, 11])
    assert days.values[0] == (b"\0\0", [13])
    assert days.values[-1] == (b"\1" + b"\xff" * 8 + b"\1" + b"\xff" * 4, [8])
    uuids = [f"{n * 0x13579BDF:08x}-{n * 791:04x}-4000-8000-{n * 0x11112222:012x}" for n in range(12)]
    spelled = [text if n < 8 else text.upper() for n, text in enumerate(uuids)]
    rows_of_uuids = [[7 - n] if n < 8 else [2 * n - 8, 2 * n - 7] for n in range(12)]
    hashes = read["packed-hashes.lmx"]
    assert (hashes.column, hashes.key_type, hashes.nulls) == ("url", (24, 12, 19), [90])
    assert sorted(row for _, rows in hashes.values for row in rows) == list(range(90))
    # The XXH64 of the first URL is 4540247fcfdb35b9.
    assert dict(hashes.values)[0x454] == [0]
    assert [rows for _, rows in hashes.values if len(rows) > 1] == [[8, 9], [42, 85], [45, 82]]
    assert read["packed-uuids.lmx"].values == list(zip([text.encode() for text in spelled], rows_of_uuids, strict=True))


def test_golden_links_are_read_by_the_second_reader() -> None:
    links = read_segment((GOLDEN / "links.lmx").read_bytes())
    assert (links.column, links.key_type, links.encoding) == ("s\1p\1o", (22, 19, 19, 19), "linked")
    assert [rows for _, rows in links.values] == [[0], [1, 2, 3], [4], [5], [7], [6, 64]]
    assert links.values[0][0] == b"\1GO:0001\0\0\1is_a\0\0\1GO:0003\0\0"
    assert links.values[4][0] == b"\1GO:0002\0\0\1is_a\0\0\0"
    nodes = read_segment((GOLDEN / "links-numbers.lmx").read_bytes())
    ends = [(None, 1), (-5, 7), (1, 1), (1, 1 << 40), (7, -5)]
    parts = [[b"\0" if end is None else b"\1" + (end + SIGN).to_bytes(8, "big") for end in link] for link in ends]
    assert nodes.values == [(near + far, [row]) for row, (near, far) in enumerate(parts)]


def found(segment: Segment, keys: list[int | bytes]) -> list[list[int]]:
    """The zones in which each key is found."""
    return [[number for number, zone in enumerate(segment.zones) if zone.may_hold(key)] for key in keys]


def test_golden_zones_are_read_by_the_second_reader() -> None:
    filtered, strings, sliced = (
        read_segment((GOLDEN / f"{name}.lmx").read_bytes()) for name in ("filtered", "filtered-strings", "sliced")
    )
    zones = [(640, 600, (1000, 2797)), (8, 0, (2797, 2797)), (4, 1, (5000, 5000)), (9, 5, (-(2**31), 2**31 - 1))]
    assert [(zone.rows, zone.keys, zone.fences) for zone in filtered.zones] == [
        (rows, keys, (key_of(low), key_of(high))) for rows, keys, (low, high) in zones
    ]
    assert [zone.shape for zone in filtered.zones] == [(2, 19232, 17), (0, 0, 17), (1, 72, 17), (1, 328, 17)]
    assert (filtered.encoding, filtered.opaque) == ("filtered", [639, 712])
    assert found(filtered, [key_of(1000 + 3 * key) for key in range(600)]) == [[0]] * 600
    rest = [5000, -(2**31), -1, 0, 77, 2**31 - 1, 1001, 78]
    assert found(filtered, [key_of(key) for key in rest]) == [[2], [3], [3], [3], [3], [3], [], []]
    names = ["user/001", "user/002", "user/0035", "user/0041", "user/0048", "", "straße", "user/0042", "user/003"]
    assert found(strings, [name.encode() for name in names]) == [[0], [0], [0], [1], [1], [3], [3], [], []]
    assert strings.zones[1].fences == (b"user/004", b"user/005")
    assert [(zone.rows, zone.keys) for zone in sliced.zones] == [(5, 0 if zone == 5 else 4) for zone in range(11)]
    for number in (zone for zone in range(11) if zone != 5):
        keys = [key_of(number * 1_000_003 + key * 17) for key in range(4)]
        assert all(number in zones for zones in found(sliced, keys))
    missing = found(sliced, [key_of(-key) for key in range(1, 101)])
    assert sum(map(len, missing)) < 20


def test_golden_edits_are_read_by_the_second_reader() -> None:
    empty = read_edit((GOLDEN / "empty.lmm").read_bytes())
    assert empty == Edit(b"store-0123456789", 1, 0)
    edit = read_edit((GOLDEN / "every-change.lmm").read_bytes())
    assert (edit.number, edit.checkpoint) == (42, 39)
    assert edit.files_removed == [(2, 5), (9, 10), (1 << 20, (1 << 20) + 1)]
    assert (edit.schemas_removed, edit.schemas_added) == ([1, 5], (6, [b"schema of 2024", b""]))
    assert [(number, file.path, file.schema) for number, file in edit.files_changed] == [
        (7, "a.parquet", 0),
        (300, "b/c.parquet", 6),
    ]
    first, files = edit.files_added
    assert first == 70_000
    assert files == [
        File(
            "year=2024/part-0.parquet",
            1_234_567,
            1_700_000_000_000_000_001,
            '"abc"',
            0x0123_4567_89AB_CDEF,
            1,
            [100_000, 100_000, 7],
            [0, 3, 300],
        ),
        File("year=2025/größe.parquet", 0, -1, None, 2**64 - 1, 0, [], []),
    ]
    assert (edit.segments_removed, edit.indexes_removed) == ([b"\1" * 16, b"\2" * 16], [b"\3" * 16])
    assert [(index.name, index.column, index.options) for index in edit.indexes_added] == [
        ("by_city", "city", [("precision", "2")]),
        ("by_time", "time", []),
    ]
    assert [(segment.path, segment.length, segment.files) for segment in edit.segments_added] == [
        ("indexes/5e5e.lmx", 4321, [(70_000, 70_002)]),
        ("indexes/5f5f.lmx", 4321, [(0, 1), (7, 8), (300, 302)]),
    ]
    assert edit.updates is not None


def test_the_golden_checkpoint_is_read_by_the_second_reader() -> None:
    empty = read_root((GOLDEN / "empty.lmk").read_bytes())
    assert empty == Root(pages=[(0, None)])
    pieces = {path.read_bytes()[-32:-16]: path.read_bytes() for path in GOLDEN.glob("*.lmp")}
    root = read_root((GOLDEN / "table.lmk").read_bytes())
    state = open_checkpoint(root, pieces.__getitem__)
    assert (len(pieces), state.number, state.next_file, state.next_schema) == (3, 2, 1032, 3)
    assert state.schemas == {0: b"schema", 2: b"newer schema"}
    live = [0, 1, 2, 3, 1023, 1024, 1029, 1030, 1031]
    assert [live for live, _ in root.parts] == [live[:5], live[5:]]
    paths = {number: f"day={number // 10}/part-{number}.parquet" for number in live}
    paths |= {1030: "day=0/part-7.parquet", 1031: "day=200/part-2000.parquet"}
    assert {number: file.path for number, file in state.files.items()} == paths
    touched, newer = state.files[1], state.files[1030]
    assert (touched.tag, touched.modified) == ('"tag"', 5)
    assert (newer.schema, newer.false_statistics) == (2, [4])
    assert [(index.name, index.column) for index in root.indexes] == [("by_city", "city"), ("by_time", "time")]
    assert [(segment.path, segment.files) for segment in root.segments] == [("indexes/5e5e.lmx", [(0, 1030)])]
    assert state.updates is not None


def test_the_second_reader_refuses_a_checkpoint_whose_pieces_are_others() -> None:
    root = read_root((GOLDEN / "table.lmk").read_bytes())
    page = (GOLDEN / "table-page.lmp").read_bytes()
    with pytest.raises(AssertionError):
        open_checkpoint(root, lambda _: page)


def test_golden_updates_are_read_by_the_second_reader() -> None:
    updates = read_edit((GOLDEN / "every-change.lmm").read_bytes()).updates
    assert updates is not None
    assert updates == read_root((GOLDEN / "table.lmk").read_bytes()).updates
    assert (updates.key, updates.options) == (["country", "straße"], [("buffer", "1GiB"), ("alpha", "")])
    assert updates.log == (LOG, "updates/3c3c.lml", FIRST)
    most = 2**32 - 1
    position_map = (b"\x4e" * 16, "updates/4e4e.lmx", 777)
    migrated = [(0, 1), (7, 300), (most - 1, most)]
    assert updates.runs == [
        Run(b"\xa1" * 16, "updates/a1a1.lmr", 1 << 40, 2, most, (0, 30), migrated, position_map, 0),
        Run(b"\xa2" * 16, "updates/a2a2.lmr", 0, 1, 10, (33, 33), [], None, 3),
    ]
    assert (updates.migration, updates.migrations) == ((3, [(0, (1, 5)), (0, (300, 4000)), (1, (9, 10))]), 3)
    assert updates.replaced == [("year=2024/part-0.parquet", 1_234_567, -2)]
    assert updates.data == [("data/d1.parquet", 4321), ("data/größe.parquet", 0)]
    assert updates.written == [1, 200, 30_000, 4_000_000, 2**64 - 1]
    idle = read_edit((GOLDEN / "key-only.lmm").read_bytes()).updates
    assert idle is not None
    assert (idle.key, idle.log, idle.runs, idle.migration) == (["id"], (bytes(16), "l", 0), [], None)
    assert (idle.options, idle.migrations, idle.replaced, idle.data, idle.written) == ([], 0, [], [], [0] * 5)
    assert (updates.transactions, updates.publications, idle.publications) == ([], [], [])
    extras = read_edit((GOLDEN / "extras.lmm").read_bytes()).updates
    assert extras is not None
    assert extras.transactions == [("größe of loads", 2**64 - 1, 40), ("b", 0, 0)]
    year = "year=2024"
    moved = (f"{year}/größe.parquet", f"originals/7/{year}/größe.parquet", 1_234_567, -3)
    assert extras.publications == [
        Publication(8, [(f"data/7/{year}/part-1.parquet", f"{year}/part-1.parquet", 4321)], [moved]),
        Publication(0, [("data/8/a.parquet", "a.parquet", 0)], []),
    ]


def test_the_golden_position_map_is_read_by_the_second_reader() -> None:
    position_map = read_position_map((GOLDEN / "position-map.lmx").read_bytes())
    assert (position_map.run, position_map.rows) == (b"\xa1" * 16, 9000)
    deleted = [40 * row + row % 7 for row in range(5000)]
    row_groups = [100_000, 100_000, 7]
    modified = 1_700_000_000_000_000_001
    assert position_map.files == [
        Resolved("year=2024/part-0.parquet", 1_234_567, modified, '"abc"', row_groups, deleted, [0, 8999]),
        Resolved("year=2025/größe.parquet", 0, -1, None, [], [], []),
    ]
    assert position_map.runs == [(b"\xa0" * 16, 64, list(range(64))), (b"\x9f" * 16, 0, [])]
    assert position_map.keys is None


def test_the_golden_filter_of_a_run_is_read_by_the_second_reader() -> None:
    position_map = read_position_map((GOLDEN / "position-map-keys.lmx").read_bytes())
    assert (position_map.rows, position_map.runs) == (10, [(b"\xa1" * 16, 9000, [1, 2])])
    assert position_map.keys is not None
    assert position_map.keys.types == [(4,), (19,)]
    # Ten keys of 9824 / 1024 bits are 12 bytes.
    assert (position_map.keys.density, position_map.keys.hashes, len(position_map.keys.bits)) == (9824, 7, 12)
    texts = ["a", "b", "", "größe", "e", "f", "g", "h", "i", "a longer text than the others"]
    keys = [((number * 10 + SIGN).to_bytes(8, "little"), text.encode()) for number, text in enumerate(texts)]
    assert all(position_map.keys.may_hold(10, key) for key in keys)
    absent = [((number + SIGN).to_bytes(8, "little"), b"absent") for number in range(1000)]
    assert sum(position_map.keys.may_hold(10, key) for key in absent) < 50


LOG, FIRST = b"log-of-updates-1", 41
COMMITS = [
    (41, "load größe", [("insert", b"rows to add"), ("delete", b"keys")]),
    (42, "", [("upsert", b"")]),
    (43, "", [("update", b"keys and new values")]),
]


def test_the_golden_log_is_read_by_the_second_reader() -> None:
    data = (GOLDEN / "frames.lml").read_bytes()
    log = read_log(data, LOG, FIRST)
    assert (log.commits, log.end, log.torn) == (COMMITS, len(data), False)
    ends = {68: 0, 126: 2, len(data): 3}
    for length in range(68, len(data) + 1):
        end = max(end for end in ends if end <= length)
        log = read_log(data[:length], LOG, FIRST)
        assert (log.commits, log.end, log.torn) == (COMMITS[: ends[end]], end, length > end)


def test_a_flipped_bit_of_the_golden_log_is_an_error_or_a_torn_tail() -> None:
    data = (GOLDEN / "frames.lml").read_bytes()
    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
        if place < 126:
            with pytest.raises(AssertionError):
                read_log(flipped, LOG, FIRST)
        else:
            log = read_log(flipped, LOG, FIRST)
            assert (log.commits, log.torn) == (COMMITS[:2], True)


READERS: dict[str, Callable[[bytes], object]] = {
    ".lml": lambda data: read_log(data, LOG, FIRST),
    ".lmm": read_edit,
    ".lmk": read_root,
    ".lmp": read_piece,
    ".lmx": read_position_map,
}


def bad_files() -> list[str]:
    """Bad files of manifests and of what updates write."""
    rows = [line.split("|") for line in (BAD / "README.md").read_text().splitlines() if line.startswith("| `")]
    names = [name.strip(" `") for _, name, *_ in rows]
    return [name for name in names if not name.endswith(".lmx") or name.startswith("position-map-")]


@pytest.mark.parametrize("name", bad_files())
def test_bad_manifests_and_updates_are_refused_by_the_second_reader(name: str) -> None:
    with pytest.raises((AssertionError, IndexError, KeyError, UnicodeDecodeError)):
        READERS[Path(name).suffix]((BAD / name).read_bytes())


def test_the_encodings_that_the_package_names_are_those_of_the_format() -> None:
    assert [*(name for name, *_ in ENCODINGS.values()), *ZONED.values(), "linked"] == list(get_args(Encoding))


# Bins are of numbers and moments.
BINNED = {"id": 1, "amount": 2, "day": "month"}
CASES = [
    (column, name)
    for column in ("id", "city", "amount", "day", "paid")
    for name, *_ in ENCODINGS.values()
    if name != "binned" or column in BINNED
]


@pytest.mark.parametrize(("column", "encoding"), CASES)
def test_a_built_segment_holds_the_values_of_the_data(plain: Judged, column: str, encoding: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "binned": {"using": "bitmap", "precision": BINNED.get(column)},
        "packed": {"using": "key"},
    }
    plain.table.create_index(column, progress=False, **options.get(encoding, {"using": "bitmap", "encoding": encoding}))
    assert plain.table.indexes[0].encoding == encoding
    store = plain.folder / "_lakemark"
    manifest = open_store(store)
    assert [index.column for index in manifest.indexes.values()] == [column]
    checked = 0
    for entry in manifest.segments.values():
        data = (store / entry.path).read_bytes()
        segment = read_segment(data)
        assert (len(data), segment.column, segment.encoding) == (entry.length, column, encoding)
        covered = sorted(manifest.files[number].path for number in expanded(entry.files))
        assert sorted(file[0] for file in segment.files) == covered
        found: dict[int, int | bytes | None] = dict.fromkeys(segment.nulls)
        for key, rows in segment.values:
            found.update(dict.fromkeys(rows, key))
        for name, base, row_groups in segment.files:
            values = pq.read_table(plain.folder / name, columns=[column])[column].to_pylist()
            assert len(values) == sum(row_groups)
            keys = [None if value is None else key_of(value) for value in values]
            assert [found.pop(base + row) for row in range(len(values))] == keys
            checked += 1
        assert (found, segment.opaque) == ({}, [])
    assert checked == 4

"""Updates in the second reader, made from section 13 of docs/format.md alone: their part, logs, position maps."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from format_zones import positions_of, xxh64

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

MAX_FRAME = 1 << 30
MAX_NAME = 1 << 14
OPERATIONS = {1: "insert", 2: "upsert", 3: "update", 4: "delete"}

Range = tuple[int, int]


class Fields(Protocol):
    """What is used of the cursor of the second reader."""

    at: int
    data: bytes

    def take(self, length: int) -> bytes: ...
    def number(self, width: int) -> int: ...
    def signed(self, width: int) -> int: ...
    def varint(self) -> int: ...
    def varints(self) -> list[int]: ...
    def blob(self) -> bytes: ...
    def string(self) -> str: ...
    def key_type(self) -> tuple[int, ...]: ...
    def left(self) -> int: ...
    def end(self) -> None: ...


@dataclass
class Run:
    """A run, as a manifest lists it."""

    id: bytes
    path: str
    length: int
    passes: int
    rows: int
    sequences: Range
    migrated: list[Range]
    position_map: tuple[bytes, str, int] | None
    during: int


@dataclass
class Publication:
    """Files that changed places between the store and the table's folder."""

    manifest: int
    files: list[tuple[str, str, int]]
    originals: list[tuple[str, str, int, int]]


@dataclass
class Updates:
    """The part of an edit or of a root about updates."""

    key: list[str]
    options: list[tuple[str, str]]
    log: tuple[bytes, str, int]
    runs: list[Run]
    migration: tuple[int, list[tuple[int, Range]]] | None
    migrations: int
    replaced: list[tuple[str, int, int]]
    data: list[tuple[str, int]]
    written: list[int] = field(default_factory=list)
    transactions: list[tuple[str, int, int]] = field(default_factory=list)
    publications: list[Publication] = field(default_factory=list)
    delta: tuple[str, int, int] | None = None


def unique(values: Sequence[Hashable]) -> None:
    assert len(set(values)) == len(values), "twice"


def read_path(cursor: Fields) -> str:
    path = cursor.string()
    assert all(part not in ("", ".", "..") and "\0" not in part for part in path.split("/"))
    return path


def read_range(cursor: Fields) -> Range:
    start = cursor.varint()
    return start, start + cursor.varint()


def check_ranges(ranges: list[Range], rows: int) -> None:
    assert all(start < end <= rows < 2**32 for start, end in ranges)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


def read_run(cursor: Fields) -> Run:
    run = Run(
        cursor.take(16),
        read_path(cursor),
        cursor.varint(),
        cursor.number(1),
        cursor.varint(),
        (cursor.varint(), cursor.varint()),
        [read_range(cursor) for _ in range(cursor.varint())],
        None,
        0,
    )
    if flag(cursor):
        run.position_map = (cursor.take(16), read_path(cursor), cursor.varint())
    run.during = cursor.varint()
    assert run.passes in (1, 2)
    assert run.sequences[0] <= run.sequences[1] < 2**64 - 1
    check_ranges(run.migrated, run.rows)
    return run


def flag(cursor: Fields) -> bool:
    value = cursor.number(1)
    assert value in (0, 1)
    return value == 1


def read_migration(cursor: Fields, runs: list[Run]) -> tuple[int, list[tuple[int, Range]]]:
    number = cursor.varint()
    slices = [(cursor.varint(), read_range(cursor)) for _ in range(cursor.varint())]
    assert slices == sorted(slices)
    for ordinal, group in itertools.groupby(slices, key=lambda piece: piece[0]):
        check_ranges([rows for _, rows in group], runs[ordinal].rows)
    return number, slices


def read_updates(cursor: Fields) -> Updates:
    """The rest of an edit or of a root."""
    key = [cursor.string() for _ in range(cursor.varint())]
    assert 1 <= len(key) <= 64
    unique(key)
    options = [(cursor.string(), cursor.string()) for _ in range(cursor.varint())]
    log = (cursor.take(16), read_path(cursor), cursor.varint())
    runs = [read_run(cursor) for _ in range(cursor.varint())]
    unique([run.id for run in runs])
    sequences = [*(run.sequences for run in runs), (log[2], log[2])]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(sequences))
    migration = read_migration(cursor, runs) if flag(cursor) else None
    migrations = cursor.varint()
    assert migration is None or migration[0] == migrations > 0
    assert all(run.during <= migrations for run in runs)
    replaced = [(read_path(cursor), cursor.varint(), cursor.signed(8)) for _ in range(cursor.varint())]
    data = [(read_path(cursor), cursor.varint()) for _ in range(cursor.varint())]
    unique([path for path, *_ in replaced])
    unique([path for path, _ in data])
    written = [cursor.varint() for _ in range(5)]
    extras = read_extras(cursor, log[2]) if cursor.at < len(cursor.data) else ([], [], None)
    assert extras[2] is None or extras[2][1] <= migrations
    return Updates(key, options, log, runs, migration, migrations, replaced, data, written, *extras)


Extras = tuple[list[tuple[str, int, int]], list[Publication], tuple[str, int, int] | None]


def read_extras(cursor: Fields, log_begins: int) -> Extras:
    """The part behind the updates, from the tag on."""
    assert cursor.number(1) == 2
    transactions = [(cursor.string(), cursor.varint(), cursor.varint()) for _ in range(cursor.varint())]
    unique([application for application, *_ in transactions])
    assert all(application and sequence < log_begins for application, _, sequence in transactions)
    publications = []
    for _ in range(cursor.varint()):
        manifest = cursor.varint()
        files = [(read_path(cursor), read_path(cursor), cursor.varint()) for _ in range(cursor.varint())]
        originals = [
            (read_path(cursor), read_path(cursor), cursor.varint(), cursor.signed(8)) for _ in range(cursor.varint())
        ]
        for pairs in (files, originals):
            unique([pair[0] for pair in pairs])
            unique([pair[1] for pair in pairs])
        publications.append(Publication(manifest, files, originals))
    numbers = [publication.manifest for publication in publications]
    done = numbers[:-1] if numbers and numbers[-1] == 0 else numbers
    assert all(before < after for before, after in itertools.pairwise([0, *done]))
    delta = (cursor.string(), cursor.varint(), cursor.varint()) if flag(cursor) else None
    assert transactions or publications or delta
    return transactions, publications, delta


Commit = tuple[int, str, list[tuple[str, bytes]]]


@dataclass
class Log:
    """What a log holds."""

    commits: list[Commit]
    end: int
    torn: bool


class LogReader:
    """A log of this id, whose first commit has this number."""

    def __init__(
        self, data: bytes, log_id: bytes, first: int, tools: tuple[Callable[[bytes], int], Callable[[bytes], Fields]]
    ) -> None:
        self.data, self.id, self.first = data, log_id, first
        self.crc, self.cursor = tools

    def checksum(self, place: int, data: bytes) -> int:
        return self.crc(self.id + struct.pack("<Q", place) + data)

    def header(self, at: int) -> tuple[int, int, int] | None:
        """Length, sequence and payload checksum of the frame at a place, if its own checksum is right."""
        header = self.data[at : at + 20]
        if len(header) < 20 or self.checksum(at, header[:16]) != int.from_bytes(header[16:], "little"):
            return None
        length, sequence, checksum = struct.unpack("<IQI", header[:16])
        return length, sequence, checksum

    def begins(self, at: int, place: int, number: int) -> bool:
        """Whether a frame begins behind the place `at`, where the commit `number` would be."""
        header = self.header(place)
        return header is not None and header[0] <= MAX_FRAME and number <= header[1] <= number + place - at

    def read(self) -> Log:
        header = b"LAKEMARK" + bytes([6, 0, 4]) + bytes(5) + self.id + bytes(32)
        assert self.data[:64] == header
        assert self.data[64:68] == struct.pack("<I", self.checksum(0, header))
        commits: list[Commit] = []
        at = 68
        while at < len(self.data):
            number = self.first + len(commits)
            found = self.header(at)
            length = found[0] if found else 0
            assert length <= MAX_FRAME
            payload = self.data[at + 20 : at + 20 + length]
            if not found or len(payload) < length or self.checksum(at, payload) != found[2]:
                behind = at + 20 + length if found else at + 1
                assert not any(self.begins(at, place, number) for place in range(behind, len(self.data))), "damaged"
                return Log(commits, at, True)
            assert found[1] == number
            commits += self.commits(payload, number)
            at += 20 + length
        return Log(commits, at, False)

    def commits(self, payload: bytes, number: int) -> list[Commit]:
        cursor = self.cursor(payload)
        commits = []
        for place in range(cursor.varint()):
            tag = cursor.string()
            assert len(tag.encode()) <= MAX_NAME
            changes = [(OPERATIONS[cursor.number(1)], cursor.blob()) for _ in range(cursor.varint())]
            commits.append((number + place, tag, changes))
        cursor.end()
        assert commits
        return commits


@dataclass
class Resolved:
    """A data file of a position map."""

    path: str
    size: int
    modified: int
    tag: str | None
    row_groups: list[int]
    deleted: list[int]
    completed: list[int]


@dataclass
class PositionMap:
    """What the keys of a run were resolved to."""

    run: bytes
    rows: int
    files: list[Resolved]
    runs: list[tuple[bytes, int, list[int]]]
    keys: KeyFilter | None = None


@dataclass
class KeyFilter:
    """A filter of the keys of a run."""

    types: list[tuple[int, ...]]
    density: int
    hashes: int
    bits: bytes

    def shape(self, rows: int) -> tuple[int, int]:
        """Blocks, and bits of each."""
        size = -(-rows * self.density // 8192)
        blocks = -(-size // 4096)
        return (blocks, 8 * -(-size // blocks)) if blocks else (0, 0)

    def may_hold(self, rows: int, key: Sequence[bytes]) -> bool:
        """Whether all bits of a key, the bytes of its values, are set."""
        (blocks, bits), h = self.shape(rows), 0
        for value in key:
            h = xxh64(value, h)
        places = positions_of(h, blocks, bits, self.hashes)
        return blocks > 0 and all(self.bits[place // 8] >> place % 8 & 1 for place in places)


def read_key_filter(cursor: Fields, rows: int) -> KeyFilter:
    """The filter behind the runs of a position map."""
    assert cursor.number(1) == 1
    types = [cursor.key_type() for _ in range(cursor.varint())]
    assert 1 <= len(types) <= 64
    keys = KeyFilter(types, cursor.varint(), cursor.number(1), cursor.blob())
    assert 1 <= keys.density <= 1 << 20
    assert 1 <= keys.hashes <= 64
    blocks, bits = keys.shape(rows)
    assert len(keys.bits) * 8 == blocks * bits
    return keys


def read_position_map_body(cursor: Fields, posting: Callable[[bytes, int, int], list[int]]) -> PositionMap:
    """The directory of a position map."""

    def row_list(universe: int) -> list[int]:
        count = cursor.varint()
        return posting(cursor.blob(), count, universe) if count else []

    position_map = PositionMap(cursor.take(16), cursor.varint(), [], [])
    for _ in range(cursor.varint()):
        path, size, modified = read_path(cursor), cursor.varint(), cursor.signed(8)
        tag = cursor.string() if flag(cursor) else None
        row_groups = cursor.varints()
        assert sum(row_groups) < 2**32
        deleted, completed = row_list(sum(row_groups)), row_list(position_map.rows)
        position_map.files.append(Resolved(path, size, modified, tag, row_groups, deleted, completed))
    for _ in range(cursor.varint()):
        run, rows = cursor.take(16), cursor.varint()
        position_map.runs.append((run, rows, row_list(rows)))
    if cursor.left():
        position_map.keys = read_key_filter(cursor, position_map.rows)
    cursor.end()
    unique([(file.path, file.size, file.modified, file.tag) for file in position_map.files])
    unique([position_map.run, *(run for run, *_ in position_map.runs)])
    return position_map

"""Manifests in the second reader, made from section 11 of docs/format.md alone: edits, roots and pieces."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from format_container import Cursor, open_container
from format_updates import Updates, flag, read_path, read_updates, unique
from format_zones import xxh64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PART_FILES = 1024
PAGE_FILES = 1024
MOST = 2**32 - 1
EDIT, ROOT, PART, PAGE = 2, 5, 6, 7

Range = tuple[int, int]
T = TypeVar("T")


class File(NamedTuple):
    """A data file."""

    path: str
    size: int
    modified: int
    tag: str | None
    footer_hash: int
    schema: int
    row_groups: list[int]
    false_statistics: list[int]


class Index(NamedTuple):
    """A declared index."""

    id: bytes
    name: str
    column: str
    options: list[tuple[str, str]]


class Segment(NamedTuple):
    """A sidecar file."""

    id: bytes
    index_id: bytes
    path: str
    length: int
    files: list[Range]


@dataclass
class Edit:
    """What one commit changed."""

    store: bytes
    number: int
    checkpoint: int
    files_removed: list[Range] = field(default_factory=list)
    schemas_removed: list[int] = field(default_factory=list)
    schemas_added: tuple[int, list[bytes]] = (0, [])
    files_changed: list[tuple[int, File]] = field(default_factory=list)
    files_added: tuple[int, list[File]] = (0, [])
    segments_removed: list[bytes] = field(default_factory=list)
    indexes_removed: list[bytes] = field(default_factory=list)
    indexes_added: list[Index] = field(default_factory=list)
    segments_added: list[Segment] = field(default_factory=list)
    updates: Updates | None = None


@dataclass
class Root:
    """The root of a checkpoint."""

    number: int = 0
    next_schema: int = 0
    schemas: dict[int, bytes] = field(default_factory=dict)
    next_file: int = 0
    # The live numbers of each part and the name of its piece; the entries of each page and the name of its piece.
    parts: list[tuple[list[int], bytes | None]] = field(default_factory=list)
    pages: list[tuple[int, bytes | None]] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    updates: Updates | None = None


def whole(data: bytes, kind: int) -> tuple[bytes, Cursor]:
    """Id and directory of a file of this kind, whose stream is the header alone."""
    found, stream, directory = open_container(data)
    assert (found, len(stream)) == (kind, 64)
    return data[-32:-16], Cursor(directory)


def ascending(values: Sequence[int] | Sequence[str] | Sequence[bytes]) -> None:
    assert all(before < after for before, after in itertools.pairwise(values)), "out of order"  # type: ignore[operator]


def expanded(ranges: list[Range]) -> list[int]:
    return [number for start, end in ranges for number in range(start, end)]


def read_ranges(cursor: Cursor, limit: int = MOST) -> list[Range]:
    ranges: list[Range] = []
    for _ in range(cursor.varint()):
        start = (ranges[-1][1] + 1 if ranges else 0) + cursor.varint()
        ranges.append((start, start + cursor.varint() + 1))
        assert ranges[-1][1] <= limit
    return ranges


def read_file(cursor: Cursor, before: bytes) -> File:
    shared, rest = cursor.varint(), cursor.blob()
    assert shared <= len(before)
    encoded = before[:shared] + rest
    assert len(encoded) <= 16384
    assert not rest or before[shared : shared + 1] != rest[:1]
    path = Cursor(bytes_of_varint(len(encoded)) + encoded)
    file = File(
        read_path(path),
        cursor.varint(),
        cursor.signed(8),
        cursor.string() if flag(cursor) else None,
        cursor.number(8),
        cursor.varint(),
        cursor.varints(),
        cursor.varints(),
    )
    assert sum(file.row_groups) <= MOST
    ascending(file.false_statistics)
    return file


def bytes_of_varint(number: int) -> bytes:
    more = b""
    while number >= 0x80:
        more += bytes([number & 0x7F | 0x80])
        number >>= 7
    return more + bytes([number])


def read_index(cursor: Cursor) -> Index:
    index_id, name = cursor.take(16), cursor.string()
    _kind, _encoding, column = (cursor.string() for _ in range(3))
    if flag(cursor):
        cursor.signed(4)
    code, *parameters = cursor.key_type()
    assert code not in (16, 17) or parameters[0] in {16: (0, 1), 17: (2, 3)}[code]
    return Index(index_id, name, column, [(cursor.string(), cursor.string()) for _ in range(cursor.varint())])


def read_segment_entry(cursor: Cursor) -> Segment:
    segment = Segment(cursor.take(16), cursor.take(16), read_path(cursor), cursor.varint(), read_ranges(cursor))
    assert segment.files
    return segment


def read_list(cursor: Cursor, read: Callable[[Cursor], T]) -> list[T]:
    return [read(cursor) for _ in range(cursor.varint())]


def read_edit(data: bytes) -> Edit:
    store, cursor = whole(data, EDIT)
    number, _created, checkpoint = cursor.number(8), cursor.signed(8), cursor.varint()
    assert checkpoint < number
    edit = Edit(store, number, checkpoint)
    tags: list[int] = []
    while cursor.left():
        tags.append(cursor.number(1))
        read_change(cursor, tags[-1], edit)
    ascending([0, *tags])
    check_edit(edit)
    return edit


def plain_file(cursor: Cursor) -> File:
    return read_file(cursor, b"")


def read_ids(cursor: Cursor) -> list[bytes]:
    return read_list(cursor, lambda cursor: cursor.take(16))


# What each tag changes, and how it is read.
CHANGES: dict[int, tuple[str, Callable[[Cursor], Any]]] = {
    1: ("files_removed", read_ranges),
    2: ("schemas_removed", Cursor.varints),
    3: ("schemas_added", lambda cursor: (cursor.varint(), read_list(cursor, Cursor.blob))),
    4: ("files_changed", lambda cursor: read_list(cursor, lambda cursor: (cursor.varint(), plain_file(cursor)))),
    5: ("files_added", lambda cursor: (cursor.varint(), read_list(cursor, plain_file))),
    6: ("segments_removed", read_ids),
    7: ("indexes_removed", read_ids),
    8: ("indexes_added", lambda cursor: read_list(cursor, read_index)),
    9: ("segments_added", lambda cursor: read_list(cursor, read_segment_entry)),
    10: ("updates", read_updates),
}


def read_change(cursor: Cursor, tag: int, edit: Edit) -> None:
    name, read = CHANGES[tag]
    value = read(cursor)
    assert value[1] if isinstance(value, tuple) else value, "a change of nothing"
    setattr(edit, name, value)


def check_edit(edit: Edit) -> None:
    ascending(edit.schemas_removed)
    unique(edit.schemas_added[1])
    ascending([number for number, _ in edit.files_changed])
    unique([file.path for file in (*edit.files_added[1], *(file for _, file in edit.files_changed))])
    for first, items in (edit.schemas_added, edit.files_added):
        assert first + len(items) <= MOST
    ascending(edit.segments_removed)
    ascending(edit.indexes_removed)
    ascending([index.name for index in edit.indexes_added])
    unique([index.id for index in edit.indexes_added])
    ascending([segment.id for segment in edit.segments_added])


def read_live(cursor: Cursor, slots: int) -> list[int]:
    """The live numbers of a part of so many numbers, in the shortest form."""
    form = cursor.number(1)
    start = cursor.at
    bitmap = -(-slots // 8)
    if form in (0, 1):
        return list(range(slots)) if form else []
    if form == 2:
        live = expanded(read_ranges(cursor, slots))
        assert cursor.at - start <= bitmap
    else:
        assert form == 3
        bits = cursor.number(bitmap)
        live = [slot for slot in range(8 * bitmap) if bits >> slot & 1]
        assert length_of_ranges(live) > bitmap
    assert live
    assert len(live) < slots
    assert live[-1] < slots
    return live


def length_of_ranges(numbers: list[int]) -> int:
    """Bytes of the ranges of ascending numbers."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number + 1 for number in numbers if number + 1 not in numbers]
    gaps = [start - end - 1 for start, end in zip(starts[1:], ends, strict=False)]
    lengths = [end - start - 1 for start, end in zip(starts, ends, strict=True)]
    return sum(len(bytes_of_varint(number)) for number in (len(starts), *starts[:1], *gaps, *lengths))


def read_root(data: bytes) -> Root:
    _, cursor = whole(data, ROOT)
    root = Root(cursor.number(8))
    cursor.signed(8)
    root.next_schema = cursor.varint()
    schemas = read_list(cursor, lambda cursor: (cursor.varint(), cursor.blob()))
    ascending([*(number for number, _ in schemas), root.next_schema])
    unique([schema for _, schema in schemas])
    root.schemas = dict(schemas)
    root.next_file = cursor.varint()
    for first in range(0, root.next_file, PART_FILES):
        live = read_live(cursor, min(root.next_file - first, PART_FILES))
        root.parts.append(([first + slot for slot in live], cursor.take(16) if live else None))
    files = sum(len(live) for live, _ in root.parts)
    count = 1
    while count * PAGE_FILES < files:
        count *= 2
    for _ in range(count):
        entries = cursor.varint()
        root.pages.append((entries, cursor.take(16) if entries else None))
    assert sum(entries for entries, _ in root.pages) == files
    root.indexes = read_list(cursor, read_index)
    ascending([index.name for index in root.indexes])
    unique([index.id for index in root.indexes])
    root.segments = read_list(cursor, read_segment_entry)
    ascending([segment.id for segment in root.segments])
    for segment in root.segments:
        assert segment.index_id in [index.id for index in root.indexes]
        assert segment.files[-1][1] <= root.next_file
    root.updates = read_updates(cursor) if flag(cursor) else None
    cursor.end()
    return root


def piece_name(kind: int, directory: bytes) -> bytes:
    return struct.pack("<QQ", xxh64(directory, kind), xxh64(directory, kind + 256))


def open_piece(data: bytes, kind: int) -> Cursor:
    name, cursor = whole(data, kind)
    assert name == piece_name(kind, cursor.data)
    return cursor


def read_part(data: bytes) -> dict[int, File]:
    """The files of a part by their numbers."""
    cursor = open_piece(data, PART)
    part = cursor.varint()
    assert part < 1 << 22
    files: dict[int, File] = {}
    slot, before = 0, b""
    for _ in range(cursor.varint()):
        slot += cursor.varint()
        assert slot < PART_FILES
        files[part * PART_FILES + slot] = file = read_file(cursor, before)
        slot, before = slot + 1, file.path.encode()
    assert files
    cursor.end()
    return files


def read_page(data: bytes) -> list[tuple[int, int]]:
    """Hashes of paths and numbers of their files."""
    cursor = open_piece(data, PAGE)
    bits, page = cursor.number(1), cursor.varint()
    assert bits <= 22
    assert page < 1 << bits
    entries: list[tuple[int, int]] = []
    path_hash = page << 64 - bits
    for _ in range(cursor.varint()):
        path_hash += cursor.varint()
        entries.append((path_hash, cursor.varint()))
        assert path_hash >> 64 - bits == page
    assert entries
    assert all(before < after for before, after in itertools.pairwise(entries))
    cursor.end()
    return entries


def read_piece(data: bytes) -> dict[int, File] | list[tuple[int, int]]:
    return read_page(data) if open_container(data)[0] == PAGE else read_part(data)


@dataclass
class State:
    """The state of a store after an edit."""

    number: int = 0
    next_file: int = 0
    files: dict[int, File] = field(default_factory=dict)
    schemas: dict[int, bytes] = field(default_factory=dict)
    next_schema: int = 0
    indexes: dict[bytes, Index] = field(default_factory=dict)
    segments: dict[bytes, Segment] = field(default_factory=dict)
    updates: Updates | None = None

    def apply(self, edit: Edit) -> None:
        assert edit.number == self.number + 1
        self.number = edit.number
        for number in expanded(edit.files_removed):
            del self.files[number]
        for number in edit.schemas_removed:
            del self.schemas[number]
        first, schemas = edit.schemas_added
        assert first == self.next_schema or not schemas
        self.schemas.update(zip(itertools.count(first), schemas, strict=False))
        self.next_schema += len(schemas)
        for number, file in edit.files_changed:
            assert self.files[number].path == file.path
            self.files[number] = file
        first, files = edit.files_added
        assert first == self.next_file or not files
        self.files.update(zip(itertools.count(first), files, strict=False))
        self.next_file += len(files)
        unique([file.path for file in self.files.values()])
        assert all(file.schema in self.schemas for file in self.files.values())
        for segment_id in edit.segments_removed:
            del self.segments[segment_id]
        for index_id in edit.indexes_removed:
            del self.indexes[index_id]
        self.indexes |= {index.id: index for index in edit.indexes_added}
        self.segments |= {segment.id: segment for segment in edit.segments_added}
        unique([index.name for index in self.indexes.values()])
        for segment in self.segments.values():
            assert segment.index_id in self.indexes
            assert segment.files[-1][1] <= self.next_file
        self.updates = edit.updates or self.updates


def open_checkpoint(root: Root, piece: Callable[[bytes], bytes]) -> State:
    """The state of a checkpoint, whose pieces are found by their names."""
    state = State(root.number, root.next_file, {}, root.schemas, root.next_schema, updates=root.updates)
    for live, name in root.parts:
        if name is not None:
            files = read_part(piece(name))
            assert list(files) == live
            state.files |= files
    entries: list[tuple[int, int]] = []
    for count, name in root.pages:
        if name is not None:
            page = read_page(piece(name))
            assert len(page) == count
            entries += page
    assert entries == sorted((xxh64(file.path.encode()), number) for number, file in state.files.items())
    state.indexes = {index.id: index for index in root.indexes}
    state.segments = {segment.id: segment for segment in root.segments}
    return state


def open_store(store: Path) -> State:
    """The newest state of a store: that of its newest checkpoint, and the edits after it."""
    edits = sorted((store / "manifest").glob("*.lmm"))
    newest = read_edit(edits[-1].read_bytes())
    state = State()
    if newest.checkpoint:
        root = read_root((store / "manifest" / f"{newest.checkpoint:020}.lmk").read_bytes())
        state = open_checkpoint(root, lambda name: (store / "checkpoint" / f"{name.hex()}.lmp").read_bytes())
    for path in edits:
        if int(path.stem) > state.number:
            state.apply(read_edit(path.read_bytes()))
    assert state.number == newest.number
    return state

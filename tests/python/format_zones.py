"""Zones and filters of the second reader, made from section 10 of docs/format.md alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from format_container import Cursor

ALL_BITS = (1 << 64) - 1
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & ALL_BITS


def round_of(lane: int, word: int) -> int:
    return rotated((lane + word * PRIMES[1]) & ALL_BITS, 31) * PRIMES[0] & ALL_BITS


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64."""
    at = 0
    number = seed + PRIMES[4] & ALL_BITS
    if len(data) >= 32:
        lanes = [seed + more & ALL_BITS for more in (PRIMES[0] + PRIMES[1], PRIMES[1], 0, -PRIMES[0])]
        while len(data) - at >= 32:
            words = [int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4)]
            lanes = [round_of(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        number = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & ALL_BITS
        for lane in lanes:
            number = ((number ^ round_of(0, lane)) * PRIMES[0] + PRIMES[3]) & ALL_BITS
    number = number + len(data) & ALL_BITS
    while len(data) - at >= 8:
        number ^= round_of(0, int.from_bytes(data[at : at + 8], "little"))
        number = (rotated(number, 27) * PRIMES[0] + PRIMES[3]) & ALL_BITS
        at += 8
    if len(data) - at >= 4:
        number ^= int.from_bytes(data[at : at + 4], "little") * PRIMES[0] & ALL_BITS
        number = (rotated(number, 23) * PRIMES[1] + PRIMES[2]) & ALL_BITS
        at += 4
    for byte in data[at:]:
        number = rotated(number ^ byte * PRIMES[4] & ALL_BITS, 11) * PRIMES[0] & ALL_BITS
    number = (number ^ number >> 33) * PRIMES[1] & ALL_BITS
    number = (number ^ number >> 29) * PRIMES[2] & ALL_BITS
    return number ^ number >> 32


def mixed(number: int) -> int:
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & ALL_BITS
    number = (number ^ number >> 27) * 0x94D049BB133111EB & ALL_BITS
    return number ^ number >> 31


def positions(key: int | bytes, blocks: int, block_bits: int, hashes: int) -> list[int]:
    """The bits of a key in a filter."""
    return positions_of(xxh64(key.to_bytes(8, "little") if isinstance(key, int) else key), blocks, block_bits, hashes)


def positions_of(start: int, blocks: int, block_bits: int, hashes: int) -> list[int]:
    """The bits of a hash."""
    halves: list[int] = []
    for i in range(1, hashes + 1):
        number = mixed(start + i * 0x9E3779B97F4A7C15 & ALL_BITS)
        halves += [number >> 32, number & 0xFFFFFFFF]
    block = start * blocks >> 64
    return [block * block_bits + (half * block_bits >> 32) for half in halves[:hashes]]


@dataclass
class Zone:
    """Rows that lie together: how many, how many keys, the fences, and which bits of the filter are set."""

    rows: int
    keys: int
    fences: tuple[int | bytes, int | bytes] | None
    shape: tuple[int, int, int]
    bits: set[int] = field(default_factory=set)

    def may_hold(self, key: int | bytes) -> bool:
        if self.fences is not None:
            low, high = self.fences
            if isinstance(key, int) and isinstance(low, int) and isinstance(high, int):
                inside = low <= key <= high
            else:
                assert isinstance(key, bytes)
                assert isinstance(low, bytes)
                assert isinstance(high, bytes)
                inside = low <= key <= high
            if not inside:
                return False
        return self.keys > 0 and self.bits.issuperset(positions(key, *self.shape))


def column(cursor: Cursor, count: int) -> list[int]:
    """Numbers in their one form."""
    least, width = cursor.varint(), cursor.number(1)
    start = cursor.at
    numbers = cursor.packed(count, width)
    assert min(numbers) == 0
    assert max(numbers).bit_length() == width
    assert int.from_bytes(cursor.data[start : cursor.at], "little") >> count * width == 0
    return [least + number for number in numbers]


def number_fences(cursor: Cursor, count: int, before: int) -> list[tuple[int, int]]:
    fences = []
    for step, span in zip(column(cursor, count), column(cursor, count), strict=True):
        low = before + ((step >> 1) ^ -(step & 1)) & ALL_BITS
        before = low + span
        assert before <= ALL_BITS
        fences.append((low, before))
    return fences


def byte_fences(cursor: Cursor, count: int, before: bytes) -> list[tuple[bytes, bytes]]:
    fences = []
    for _ in range(count):
        low = before[: cursor.varint()] + cursor.blob()
        before = low[: cursor.varint()] + cursor.blob()
        assert low <= before
        fences.append((low, before))
    return fences


def read_zones(cursor: Cursor, stream: bytes, numbers: bool, sliced: bool) -> list[Zone]:
    """The zones of a directory with their filters."""
    count = cursor.varint()
    rows: list[int] = []
    keys: list[int] = []
    fences: list[tuple[int | bytes, int | bytes] | None] = []
    number, text = 0, b""
    while len(rows) < count:
        zones = min(count - len(rows), 1024)
        rows += column(cursor, zones)
        keys += column(cursor, zones)
        if sliced:
            fences += [None] * zones
        elif numbers:
            found = number_fences(cursor, zones, number)
            number = found[-1][1]
            fences += found
        else:
            of_bytes = byte_fences(cursor, zones, text)
            text = of_bytes[-1][1]
            fences += of_bytes
    if sliced:
        shapes = [(cursor.varint(), cursor.varint(), cursor.number(1))] * count
    else:
        density, hashes = cursor.varint(), cursor.number(1)
        shapes = [(*shape_of(keys_of_zone, density), hashes) for keys_of_zone in keys]
    found_zones = [Zone(*fields) for fields in zip(rows, keys, fences, shapes, strict=True)]
    offset = cursor.varint()
    read = read_slices if sliced else read_filters
    read(stream, offset, found_zones)
    return found_zones


def shape_of(keys: int, density: int) -> tuple[int, int]:
    size = -(-keys * density // 8192)
    blocks = -(-size // 4096)
    return blocks, 8 * -(-size // blocks) if blocks else 0


def read_filters(stream: bytes, offset: int, zones: list[Zone]) -> None:
    for zone in zones:
        size = zone.shape[0] * zone.shape[1] // 8
        bits = int.from_bytes(stream[offset : offset + size], "little")
        zone.bits = {bit for bit in range(8 * size) if bits >> bit & 1}
        offset += size
    assert offset <= len(stream)


def read_slices(stream: bytes, offset: int, zones: list[Zone]) -> None:
    size = -(-len(zones) // 8)
    for number, zone in enumerate(zones):
        every = range(zone.shape[0] * zone.shape[1])
        zone.bits = {bit for bit in every if stream[offset + bit * size + number // 8] >> number % 8 & 1}

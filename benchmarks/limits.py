"""What the machine allows: T*, the least time in which the bytes of an answer can be read and its values be looked at.

T* = max(bytes / bandwidth, reads / IOPS, values * ns / cores), where a value is a row of a posting, or a word of 64
rows where that is fewer. All of it is measured in the run that it is compared with. Bandwidth and reads a second are
measured past the page cache (O_DIRECT) for cold answers and out of the page cache for warm ones. Nanoseconds are those
of a running sum of gaps, without which no posting becomes rows.
"""

from __future__ import annotations

import mmap
import os
import random
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SECONDS_EACH = 1.5
BLOCK = 1 << 20
FILE_BLOCKS = 256
PAGE = 4096
SEQUENTIAL_THREADS = 4
RANDOM_THREADS = 32
GAPS = 1 << 16
WORD_ROWS = 64


@dataclass(frozen=True)
class Work:
    """What an answer takes, whoever gives it."""

    bytes: int
    reads: int
    values: int


@dataclass(frozen=True)
class Limits:
    """What the machine does at most, from the disk or from the page cache."""

    bytes_per_second: float
    reads_per_second: float
    nanoseconds_per_value: float
    cores: int

    def seconds(self, work: Work) -> float:
        """T* of an answer."""
        return max(
            work.bytes / self.bytes_per_second,
            work.reads / self.reads_per_second,
            work.values * self.nanoseconds_per_value * 1e-9 / self.cores,
        )


def values_of(rows: int, universe: int) -> int:
    """Values to look at for a set of rows: the rows or the others, or words of 64 of them."""
    return min(rows, universe - rows, -(-universe // WORD_ROWS))


def measure_limits(folder: Path) -> dict[str, Limits]:
    """The limits, `cold` and `warm`, measured on a file of their own in the folder."""
    nanoseconds, cores = nanoseconds_per_value(), os.cpu_count() or 1
    limits = {}
    with tempfile.NamedTemporaryFile(dir=folder, prefix="_limits-") as file:
        for _ in range(FILE_BLOCKS):
            file.write(os.urandom(BLOCK))
        file.flush()
        os.fsync(file.fileno())
        path = Path(file.name)
        for name, flags in (("cold", os.O_DIRECT), ("warm", 0)):
            path.read_bytes()
            sequential = rate(path, flags, BLOCK, SEQUENTIAL_THREADS, in_order)
            scattered = rate(path, flags, PAGE, RANDOM_THREADS, at_random)
            limits[name] = Limits(sequential * BLOCK, scattered, nanoseconds, cores)
    return limits


def nanoseconds_per_value() -> float:
    """To add a gap to the row before, in the best of many blocks."""
    gaps, rows = np.ones(GAPS, dtype=np.uint32), np.empty(GAPS, dtype=np.uint32)
    best = float("inf")
    for _ in range(200):
        start = time.perf_counter_ns()
        np.cumsum(gaps, out=rows)
        best = min(best, time.perf_counter_ns() - start)
    return best / GAPS


def in_order(size: int, length: int, thread: int) -> Iterator[int]:
    """The places of one block after the other, each thread from a place of its own."""
    blocks = size // length
    place = blocks * thread // SEQUENTIAL_THREADS
    while True:
        yield place % blocks * length
        place += 1


def at_random(size: int, length: int, thread: int) -> Iterator[int]:
    """The places of blocks in no order."""
    draw = random.Random(thread)  # noqa: S311 - no secret
    while True:
        yield draw.randrange(size // length) * length


def rate(path: Path, flags: int, length: int, threads: int, places: Callable[[int, int, int], Iterator[int]]) -> float:
    """How many reads of this length a second some threads do together."""
    counts, start = [0] * threads, threading.Barrier(threads + 1)
    handle, size = os.open(path, os.O_RDONLY | flags), path.stat().st_size

    def work(thread: int) -> None:
        # Anonymous memory begins at a page, as reads past the page cache want it.
        memory = mmap.mmap(-1, length)
        start.wait()
        end = time.perf_counter() + SECONDS_EACH
        for place in places(size, length, thread):
            os.preadv(handle, [memory], place)
            counts[thread] += 1
            if time.perf_counter() > end:
                return

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    os.close(handle)
    return sum(counts) / (time.perf_counter() - began)


def forget(paths: Iterable[Path]) -> None:
    """Takes files out of the page cache: these alone, so that nobody else's work on the machine becomes slow."""
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # somebody else's temporary file
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def disk_bytes() -> int:
    """Bytes that this process had read from disk, so that a cold answer shows that it was cold."""
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        name, value = line.split(": ")
        if name == "read_bytes":
            return int(value)
    raise RuntimeError("/proc/self/io has no read_bytes")

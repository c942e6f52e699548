"""What walks over links read: cold ones beside single reads of the disk, and many clients at once."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import closed_loop
import limits
import measure
import numpy as np
from links_engines import by_call

import lakemark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from links_table import Question

PAGE_BYTES = 4096
# Reads that a walk has under way at most.
AT_ONCE = 32
CLIENTS = (1, 2, 4, 8, 16, 32)


def segments(store: Path) -> list[Path]:
    """The files of the indexes, the largest first."""
    return sorted(store.rglob("*.lmx"), key=lambda path: path.stat().st_size, reverse=True)


def read_calls() -> int:
    """Reads of this process so far."""
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        name, value = line.split(": ")
        if name == "syscr":
            return int(value)
    raise RuntimeError("/proc/self/io has no syscr")


def disk(store: Path, reads: int) -> dict[str, float]:
    """What the disk takes for one page of an index that is not in memory, alone and with others under way."""
    path = segments(store)[0]
    pages = max(path.stat().st_size // PAGE_BYTES, 1)
    chosen = np.random.default_rng(1).integers(0, pages, 2 * reads) * PAGE_BYTES
    file = os.open(path, os.O_RDONLY)
    # What is read ahead would be a page of another read.
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)

    def seconds(at: int) -> float:
        start = time.perf_counter()
        os.pread(file, PAGE_BYTES, at)
        return time.perf_counter() - start

    limits.forget([path])
    alone = [seconds(int(at)) for at in chosen[:reads]]
    limits.forget([path])
    with ThreadPoolExecutor(AT_ONCE) as threads:
        start = time.perf_counter()
        list(threads.map(seconds, map(int, chosen[reads:])))
        together = time.perf_counter() - start
    os.close(file)
    return {"read_ms": statistics.median(alone) * 1e3, "reads_per_second": reads / together}


def cold(folder: Path, store: Path, questions: Sequence[Question]) -> dict[str, float]:
    """Walks whose leaves are neither decoded nor in the page cache: medians."""
    links = lakemark.Table(folder, store=store).links("s", "p", "o")
    via, is_out, _, _ = questions[0].shape
    # The directories are open before.
    links.reach(-1, via=via, direction="in")
    links.reach(-1, via=via)
    found = []
    for question in questions:
        limits.forget(segments(store))
        before = read_calls()
        idle = read_calls() - before
        calls = read_calls()
        direction = "out" if is_out else "in"
        rows, cost = measure.measure(
            lambda start=question.start, direction=direction: links.reach(
                start, via=via, direction=direction
            ).to_arrow()
        )
        depths = rows["depth"].to_pylist()
        found.append(
            {
                "nodes": len(depths),
                "depth": max(depths, default=0),
                # Of these the measurement itself makes some.
                "reads": read_calls() - calls - 3 * idle,
                "pages": cost.read_bytes // PAGE_BYTES,
                "wall_ms": cost.wall_seconds * 1e3,
                "cpu_ms": cost.cpu_seconds * 1e3,
            }
        )
    return {name: statistics.median(walk[name] for walk in found) for name in found[0]}


def clients(folder: Path, store: Path, questions: Sequence[Question], seconds: float) -> dict[str, dict[str, float]]:
    """Clients that ask a mix of the six queries by calls, each waiting for its answer (figures 6.9 and 6.10)."""
    links = lakemark.Table(folder, store=store).links("s", "p", "o")
    order = np.random.default_rng(5).permutation(len(questions))
    call = by_call(links)
    found = {}
    for count in CLIENTS:
        asks = [lambda text: call(questions[int(text)])] * count
        draw = lambda client, turn: str(order[(client * 7919 + turn) % len(order)])  # noqa: E731
        found[str(count)] = closed_loop.ask_at_once(asks, draw, 1, seconds).summary()
    return found

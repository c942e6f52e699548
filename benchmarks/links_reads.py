"""What walks over links read, and how long they wait for it: cold walks beside single reads of the disk."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import limits
import measure

import lakemark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stages import Tell

    from lakemark.links import Direction

PAGE_BYTES = 4096
DIRECTIONS: tuple[Direction, ...] = ("out", "in")
# Reads that a walk has under way at most.
AT_ONCE = 32
# Of the cold walks so many are compared with their nodes one by one.
COMPARED = 3
# A program that counts rounds of reads, and follows links by many tasks (rust/table/examples/link-reads.rs).
PROGRAM = "LAKEMARK_LINK_READS"
# Nodes that the tasks visit together, if none visits fewer than a path has.
VISITED = 1920
# Table 6.4: tasks, and how many nodes a path has.
PATHS = [*((tasks, 10) for tasks in (1, 2, 4, 8, 16, 32, 64, 96, 128, 192)), *((32, nodes) for nodes in (2, 4, 100))]

# In a process of its own nothing is remembered.
ALONE = "import json, sys, links_reads; print(json.dumps(getattr(links_reads, sys.argv[1])(*sys.argv[2:])))"


class Walked(NamedTuple):
    """Walks of one kind."""

    direction: Direction
    via: int
    starts: Sequence[int]


def segments(store: Path) -> list[Path]:
    """The files of the indexes, the largest first."""
    return sorted(store.rglob("*.lmx"), key=lambda path: path.stat().st_size, reverse=True)


def disk(store: Path) -> dict[str, float]:
    """What the disk takes for a page of an index past the page cache, alone and with others under way."""
    path = segments(store)[0]
    flags = os.O_DIRECT
    try:
        os.close(os.open(path, os.O_RDONLY | flags))
    except OSError:
        flags = 0  # a file system in memory
    one, many = (limits.rate(path, flags, PAGE_BYTES, threads, limits.at_random) for threads in (1, AT_ONCE))
    return {"read_ms": 1e3 / one, "reads_per_second": many}


def opened(folder: str, store: str) -> tuple[lakemark.Table, lakemark.Links]:
    """A table whose directories are open, and its links."""
    table = lakemark.Table(folder, store=store)
    links = table.links("s", "p", "o")
    for direction in DIRECTIONS:
        links.reach(-1, direction=direction).to_arrow()
    return table, links


def walk(folder: str, store: str, direction: Direction, via: str, start: str) -> dict[str, Any]:
    """A walk with nothing of it in memory."""
    table, links = opened(folder, store)
    # What a first call loads is there.
    table.stats()
    limits.forget(segments(Path(store)))
    rows, cost, read = measure.counted(
        table, lambda: links.reach(int(start), via=int(via), direction=direction).to_arrow()
    )
    depths = rows["depth"].to_pylist()
    return {
        "found": rows["node"].to_pylist(),
        "depth": max(depths, default=0),
        "pages": read.bytes // PAGE_BYTES,
        "wall_ms": cost.wall_seconds * 1e3,
        "cpu_ms": cost.cpu_seconds * 1e3,
    }


def one_by_one(folder: str, store: str, direction: Direction, via: str, *nodes: str) -> dict[str, int]:
    """The pages that nodes are in, each node looked up by itself: as many as a walk over them has to read."""
    table, links = opened(folder, store)
    find, ordered = links.out if direction == "out" else links.into, sorted(map(int, nodes))
    read = measure.counted(table, lambda: [find(node, via=int(via)) for node in ordered])[2]
    return {"pages": read.bytes // PAGE_BYTES}


def cold(folder: Path, store: Path, walked: Walked, tell: Tell) -> dict[str, Any]:
    """Walks whose leaves are neither decoded nor in the page cache: medians."""
    found, shares = [], []
    how = (folder, store, walked.direction, walked.via)
    for place, start in enumerate(walked.starts):
        tell(place / len(walked.starts))
        one = alone("walk", *how, start)
        nodes = one.pop("found")
        if place < COMPARED:
            pages = alone("one_by_one", *how, start, *nodes)["pages"]
            shares.append(one["pages"] / pages if pages else 1.0 + one["pages"])
        found.append({**one, "nodes": len(nodes)})
    return {
        **{name: statistics.median(each[name] for each in found) for name in found[0]},
        # The one that is furthest from what it has to be.
        "pages_of_leaves": max(shares, key=lambda share: abs(share - 1)),
        "rounds": link_reads("walks", *how, *walked.starts),
    }


def alone(what: str, *arguments: object) -> dict[str, Any]:
    """What a function of this module gives in a process of its own."""
    return measure.run_apart(ALONE, what, *map(str, arguments))


def link_reads(*arguments: object) -> Any:  # noqa: ANN401 - what the program prints
    """What the program says; none without it."""
    program = os.environ.get(PROGRAM)
    if program is None:
        return None
    done = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def paths(folder: Path, store: Path, nodes: int, tell: Tell) -> list[dict[str, Any]] | None:
    """Tasks that follow links of the graph, cold (figures 6.1 to 6.5); none without the program."""
    found = []
    for place, (tasks, length) in enumerate(PATHS):
        tell(place / len(PATHS))
        limits.forget(segments(store))
        queries = max(VISITED // (tasks * length), 1)
        read = link_reads("paths", folder, store, tasks, queries, length, nodes)
        if read is None:
            print(f"no rounds and no paths, as {PROGRAM} names no program; `make bench NAME=links` builds it")
            return None
        found.append({"tasks": tasks, "length": length, **read})
    return found

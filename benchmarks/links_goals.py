"""The goals of links: each with what was measured."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from goals import Goal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CALL, FUNCTIONS, BY_KEYS, BY_LINKS = "lakemark call", "lakemark functions", "lakemark SQL, keys", "lakemark SQL, links"
SQL = (BY_KEYS, BY_LINKS)
# A walk with one leaf for each step.
CHAIN = "places around a place"
UPDATED = ", updated"
# Milliseconds by a call, and in SQL.
MOST_MS = {
    **dict.fromkeys(("1 citizens of a gender", "2 events of a type", "3 movies of a type"), (1.0, 3.0)),
    "5 hundreds of ancestors": (1.0, 3.0),
    "5 thousands of ancestors": (8.0, 10.0),
}
# Times as fast as the same SQL elsewhere.
TIMES = {
    "5 tens of ancestors": {"datafusion": 300.0, "duckdb parquet": 50.0},
    "5 thousands of ancestors": {"datafusion": 100.0, "duckdb parquet": 50.0},
}
# Bytes a triple, both ways.
WITH_ROWS, WITHOUT_ROWS = 14.0, 8.0
NANOSECONDS = 400.0
# Read latencies for a step of a cold walk, and the share of the disk's reads a second.
LATENCIES, SHARE = 1.5, 0.6
TWO_CLIENTS = 1.7
CHANGED = 1.2
# A join that is left alone: times as long, or milliseconds more.
LEFT_ALONE, LEFT_ALONE_MS = 1.05, 1.0


def times(costs: Mapping[str, Mapping[str, Any]], slow: str, fast: str) -> float | None:
    """How many times as long one takes as another, by the medians over the questions that both were asked."""
    if slow not in costs or fast not in costs:
        return None
    each = [costs[name]["each_ms"] for name in (slow, fast)]
    both = min(map(len, each))
    return statistics.median(each[0][:both]) / statistics.median(each[1][:both])


def judged(result: Mapping[str, Any]) -> list[Goal]:
    """All goals."""
    parts = (asked, took, sizes, reads, paths, clients, changed, left_alone)
    return [goal for part in parts for goal in part(result)]


def asked(result: Mapping[str, Any]) -> Iterator[Goal]:
    """The six queries, warm; of 4 and 6 nothing is said."""
    for name, costs in result["asked"].items():
        if name in MOST_MS:
            by_call, by_sql = MOST_MS[name]
            yield Goal(f"{name}: call, ms", costs[CALL]["wall_ms"], "<=", by_call)
            for way in SQL:
                yield Goal(f"{name}: {way[9:]}, ms", costs[way]["wall_ms"], "<=", by_sql)
        if name[0] in "123":
            for store in ("oxigraph", "oxigraph, in memory"):
                yield Goal(f"{name}: call / {store}", times(costs, CALL, store), "<=", 1.0)
        for engine, least in TIMES.get(name, {}).items():
            for way in SQL:
                yield Goal(f"{name}: {engine} / {way[9:]}", times(costs, engine, way), ">=", least)


def took(result: Mapping[str, Any]) -> Iterator[Goal]:
    """The build of both directions."""
    built = result["indexes"]["walk"]
    yield Goal(
        "build: ns of CPU an edge and direction", built["cpu_seconds"] / result["rows"] / 2 * 1e9, "<=", NANOSECONDS
    )
    share = (built["peak_bytes"] - built["before_bytes"]) / built["memory_bytes"]
    yield Goal("build: memory at its peak / allowed", share, "<=", 1.0)


def sizes(result: Mapping[str, Any]) -> Iterator[Goal]:
    """Bytes."""
    sized = result["bytes_per_triple"]
    yield Goal("bytes a triple, with rows", sized["links, with rows"], "<=", WITH_ROWS)
    yield Goal("bytes a triple, without rows", sized["links, without rows"], "<=", WITHOUT_ROWS)


def reads(result: Mapping[str, Any]) -> Iterator[Goal]:
    """What cold walks read, and how long they wait for it."""
    disk = result["disk"]
    for name, cold in result["cold"].items():
        yield Goal(f"{name}: pages read / pages of the leaves visited", cold["pages_of_leaves"], "<=", 1.0)
        beyond = None if cold["rounds"] is None else max(walk["rounds"] - walk["depth"] for walk in cold["rounds"])
        yield Goal(f"{name}: rounds of reads beyond the depth", beyond, "<=", 1.0)
        if name == CHAIN:
            # Of a step with many leaves the disk does not read all at once.
            latencies = cold["wall_ms"] / (cold["depth"] + 1) / disk["read_ms"]
            yield Goal(f"{name}: read latencies a step, cold", latencies, "<=", LATENCIES)
        elif "thousands" in name:
            # Tens of nodes are fewer than 32 leaves a step.
            rate = cold["pages"] / cold["wall_ms"] * 1e3
            yield Goal(
                f"{name}: share of the disk's reads a second, cold", rate / disk["reads_per_second"], ">=", SHARE
            )


def paths(result: Mapping[str, Any]) -> Iterator[Goal]:
    """Many tasks at once that follow links (section 6.2)."""
    found = result["paths"] or []
    rates = [each["reads"] / each["wall_seconds"] for each in found if each["tasks"] >= 32]
    share = min(rates) / result["disk"]["reads_per_second"] if rates else None
    yield Goal("paths of 32 to 192 tasks: least share of the disk's reads a second", share, ">=", SHARE)


def clients(result: Mapping[str, Any]) -> Iterator[Goal]:
    """Many clients at once (figure 6.9)."""
    rates = [result["clients"][count]["queries_per_second"] for count in ("1", "2")]
    yield Goal("queries a second of two clients / of one", rates[1] / rates[0], ">=", TWO_CLIENTS)


def changed(result: Mapping[str, Any]) -> Iterator[Goal]:
    """After updates of a twentieth of the rows: the query that suffers most."""
    for way in (CALL, *SQL):
        worst = max((times(costs, f"{way}{UPDATED}", way) or 0.0, name) for name, costs in result["updated"].items())
        yield Goal(f"5% updated / not, {way[9:]}, worst of all queries ({worst[1]})", worst[0], "<=", CHANGED)


def left_alone(result: Mapping[str, Any]) -> Iterator[Goal]:
    """Joins of many rows, which no index helps."""
    for name, costs in result["left_alone"].items():
        more, ratio = costs["with indexes"] - costs["without"], costs["with indexes"] / costs["without"]
        # A millisecond is within the goal, whatever it is a share of.
        yield Goal(
            f"join of many rows, {name}: with indexes / without",
            min(ratio, LEFT_ALONE) if more <= LEFT_ALONE_MS else ratio,
            "<=",
            LEFT_ALONE,
        )

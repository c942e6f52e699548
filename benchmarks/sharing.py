"""Many queries at once: `make bench NAME=sharing [SCALE=1]`.

SSB and TPC-H Q1, asked by 1 to 256 clients: the figures of chapter 4 of Athanassoulis 2014. `sharing_queries` has the
workloads, `sharing_engines` the ways to answer them. Each way is a process of its own, so that its CPU is its own.
They are measured in turn, point by point, all in one run. With two cores two clients are enough to keep the machine
busy, so that CPU seconds of a query say more than its latency.

Before a point is measured, what row sets predict for it is printed. DuckDB in this process judges the answers: it
answers 64 statements of each point, and every answer that a way gave, alone or among others, has to have the same rows.
To other statements all ways have to give what the first of them gave.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import limits
import measure
import sharing_goals
import ssb
import tpc
from sharing_engines import DATAFUSION, ENGINE, OFF, PLANS, SERVED, WAYS
from sharing_headroom import Headroom
from sharing_plots import plot
from sharing_queries import LINEITEM, LINEORDER, USUAL, WORKLOADS, statement
from sharing_ways import Judge, opened
from suites import CACHE, pair_ratio

import lakemark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sharing_queries import Point, Workload
    from sharing_ways import Way

# Columns of the facts that are indexed; of the dimensions all are.
INDEXED = {
    LINEORDER: ("lo_orderdate", "lo_custkey", "lo_partkey", "lo_suppkey", "lo_discount", "lo_quantity"),
    LINEITEM: ("l_shipdate",),
}
# What takes a way longer than this is measured in one round.
PATIENCE_SECONDS = 20.0
# Statements of one round and the next are different ones.
TURNS_OF_ROUND = 1_000_000
SHOWN = ("queries/s", "CPU ms a query", "median ms", "p95 ms", "MB read", "of it from disk")


def tables_of(scale: float) -> dict[str, str]:
    """Writes the tables unless they are there; the folder of each."""
    star, lines = CACHE / f"ssb-{scale:g}", CACHE / f"tpch-{scale:g}"
    ssb.generate(star, scale)
    tpc.generate("tpch", lines, scale)
    return {**{name: str(star / name) for name in ssb.TABLES}, LINEITEM: str(lines / LINEITEM)}


def create_indexes(tables: Mapping[str, str]) -> None:
    """Lets `auto` choose an index for each column that conditions and joins are about."""
    for name, folder in tables.items():
        table = lakemark.Table(folder)
        indexed = {index.column for index in table.indexes}
        missing = [column for column in INDEXED.get(name, table.schema.names) if column not in indexed]
        for column in missing:
            table.create_index(column, build=False)
        if missing:
            table.build(progress=False)


class Bench:
    """Measures workloads in every way."""

    def __init__(self, tables: Mapping[str, str], ways: Sequence[Way], given: argparse.Namespace) -> None:
        self._tables, self._ways = tables, ways
        self._rounds, self._seconds, self._longest = given.rounds, given.seconds, given.longest
        self.judge = Judge(tables)
        self._headroom = Headroom(tables, list(INDEXED))

    def run(self, name: str, most_clients: int) -> Iterator[dict[str, Any]]:
        """Measures the points of a workload, and prints each."""
        workload = WORKLOADS[name]
        print(f"\n## {name}: {workload.title}", flush=True)
        ways = [way for way in self._ways if is_measured(way.name, workload)]
        # Seconds that each way took for a query of the point before.
        pace: dict[str, float] = {}
        for number, point in enumerate(workload.points):
            if point.clients > most_clients:
                continue
            self.judge.begin()
            headroom = self._headroom.predict([statement(name, point, client, 0) for client in range(point.clients)])
            if headroom is not None:
                print_headroom(headroom)
            left_out = too_long(pace, point.clients * workload.least_turns(point), self._longest)
            patient = [way for way in ways if way.name not in left_out]
            found = summaries(self._measure(name, number, workload, patient))
            pace |= {way: cost["wall_seconds"] / cost["queries"] for way, cost in found.items()}
            print_point(point, found, headroom, left_out)
            yield {
                "workload": name,
                "clients": point.clients,
                "label": point.label,
                "headroom": headroom,
                "ways": found,
                "left_out": left_out,
            }

    def _measure(
        self, name: str, number: int, workload: Workload, ways: Sequence[Way]
    ) -> dict[str, list[dict[str, Any]]]:
        """What the rounds of each way cost. A round before the first point warms every way and does not count."""
        by_name = {way.name: way for way in ways}
        costs: dict[str, list[dict[str, Any]]] = {way: [] for way in by_name}
        if not costs:
            return costs
        too_slow: set[str] = set()
        rounds = max(self._rounds, workload.least_rounds)
        first = -1 if number == 0 and not workload.is_cold else 0
        for turn in range(first, rounds):
            for way in measure.in_turn(list(by_name), turn):
                if way in too_slow:
                    continue
                if workload.is_cold:
                    limits.forget(self._files())
                seconds = self._seconds * workload.loop if turn >= 0 else 0.0
                cost = by_name[way].run(name, number, (turn + 1) * TURNS_OF_ROUND, seconds)
                self.judge.check(way, cost.pop("answers"))
                if turn >= 0 or cost["wall_seconds"] > PATIENCE_SECONDS:
                    costs[way].append(cost)
                if cost["wall_seconds"] > PATIENCE_SECONDS:
                    too_slow.add(way)
        return costs

    def _files(self) -> list[Path]:
        """All files of the tables and their indexes."""
        return [path for folder in self._tables.values() for path in Path(folder).rglob("*") if path.is_file()]


def is_measured(way: str, workload: Workload) -> bool:
    """Whether a workload asks for a way. The engine's own package goes with the engine."""
    return way in workload.ways or (way == DATAFUSION and ENGINE in workload.ways)


def too_long(pace: Mapping[str, float], queries: int, longest: float) -> dict[str, float]:
    """The ways that would take too long for so many queries at their pace of before, with the seconds."""
    return {way: seconds * queries for way, seconds in pace.items() if seconds * queries > longest}


def summaries(costs: Mapping[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """The medians of each way, and how it compares with unshared queries round by round."""
    for rounds in costs.values():
        for cost in rounds:
            cost["cpu_seconds_per_query"] = cost["cpu_seconds"] / cost["queries"]
            cost["seconds_per_query"] = cost["wall_seconds"] / cost["queries"]
    found = {}
    for way, rounds in costs.items():
        found[way] = {name: statistics.median(cost[name] for cost in rounds) for name in rounds[0]}
        found[way]["rounds"] = len(rounds)
        base = costs.get(OFF, [])
        if len(base) == len(rounds):
            found[way] |= compared(rounds, base)
        here = costs.get(PLANS, []) if way in SERVED else []
        if len(here) == len(rounds):
            # The server shares plans as well.
            found[way]["longer_than_here_ms"] = longer_ms(rounds, here)
    return found


def compared(rounds: Sequence[Mapping[str, float]], base: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How rounds compare with those of unshared queries, pair by pair."""

    def times(name: str) -> float:
        return pair_ratio([cost[name] for cost in rounds], [cost[name] for cost in base])

    return {
        "ratio": times("latency_ms"),
        "longer_ms": longer_ms(rounds, base),
        "cpu_ratio": times("cpu_seconds_per_query"),
        "seconds_ratio": times("seconds_per_query"),
    }


def longer_ms(rounds: Sequence[Mapping[str, float]], base: Sequence[Mapping[str, float]]) -> float:
    """By how many milliseconds the answers of rounds took longer than those of others, pair by pair."""
    pairs = zip(rounds, base, strict=True)
    return statistics.median(one["latency_ms"] - other["latency_ms"] for one, other in pairs)


def print_headroom(found: Mapping[str, Any]) -> None:
    """Prints what row sets predict for statements at once."""
    print(
        f"\npredicted for {found['statements']} at once: {found['distinct']} different ones, "
        f"indexes know the rows of {found['known_to_indexes']}; "
        f"rows wanted {found['selected']:,}, their union {found['union']:,} of {found['rows']:,}; "
        f"{found['pieces_shared']} of {found['pieces']} row groups shared; "
        f"decode {found['private'] / 1e6:.1f} ms alone, {found['shared'] / 1e6:.1f} ms shared ({found['bound']:.1f}x); "
        f"scans are {found['scan_share']:.0%} of the CPU, joins {found['join_share']:.0%}",
        flush=True,
    )


def print_point(
    point: Point,
    found: Mapping[str, Mapping[str, float]],
    headroom: Mapping[str, Any] | None,
    left_out: Mapping[str, float],
) -> None:
    """Prints what a point costs in every way, and the CPU beside unshared queries as predicted."""
    label = f"{point.clients} clients" + (f", {point.label}" if point.label else "")
    rows = []
    for way, cost in found.items():
        beside = cost.get("cpu_ratio")
        expected = headroom["cpu"].get(way) if headroom is not None else None
        rows.append(
            (
                way,
                f"{cost['queries_per_second']:.1f}",
                f"{cost['cpu_seconds_per_query'] * 1e3:.1f}",
                f"{cost['latency_ms']:.1f}",
                f"{cost['latency_ms_p95']:.1f}",
                f"{cost['read_bytes'] / 1e6:.1f}",
                f"{cost['disk_bytes'] / 1e6:.1f}",
                "" if beside is None else f"{beside:.2f}",
                "" if expected is None else f"{expected:.2f}",
            )
        )
    measure.print_table((label, *SHOWN, "x CPU of off", "predicted"), rows)
    if left_out:
        waits = ", ".join(f"{way} ({seconds:.0f} s)" for way, seconds in left_out.items())
        print(f"\nleft out, as it would take too long: {waits}")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long closed loops go on")
    parser.add_argument(
        "--longest",
        type=float,
        default=30.0,
        help="a way that would take more seconds for a round of a point is left out",
    )
    parser.add_argument("--most-clients", type=int, default=256, help="points with more clients are left out")
    parser.add_argument("--workloads", default=",".join(USUAL), help=f"of {','.join(WORKLOADS)}; or all")
    parser.add_argument(
        "--ways", default=",".join(way for way in WAYS if way != DATAFUSION), help=f"of {','.join(WAYS)}"
    )
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    given.workloads = list(WORKLOADS) if given.workloads == "all" else given.workloads.split(",")
    given.ways = given.ways.split(",")
    for names, known in ((given.workloads, WORKLOADS), (given.ways, WAYS)):
        unknown = [name for name in names if name not in known]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return given


def main() -> None:
    """Generates, indexes, predicts, measures, judges, reports."""
    given = arguments()
    tables = tables_of(given.scale)
    create_indexes(tables)
    ways, skipped = opened(given.ways, tables)
    bench = Bench(tables, ways, given)
    found = [point for name in given.workloads for point in bench.run(name, given.most_clients)]
    for way in ways:
        way.close()
    goals, noisy = sharing_goals.judged(found), sharing_goals.noisy(found)
    print(
        f"\n{bench.judge.known:,} different statements, to each of which all ways gave the same answer; "
        f"{bench.judge.judged:,} of them are as DuckDB answers them"
    )
    if noisy:
        print(f"\ntoo noisy to be judged: {', '.join(noisy)}")
    measure.print_table(("what", "goal", "measured", ""), [sharing_goals.shown(goal) for goal in goals])
    result = {
        "benchmark": "sharing",
        "scale": given.scale,
        "rounds": given.rounds,
        "seconds": given.seconds,
        "profile": os.environ.get("LAKEMARK_PROFILE", "dev"),
        "machine": measure.machine(),
        "workloads": given.workloads,
        "ways": [way.name for way in ways],
        "notes": {way.name: way.note for way in ways if way.note},
        "skipped": skipped,
        "statements": bench.judge.known,
        "judged": bench.judge.judged,
        "points": found,
        "goals": goals,
        "noisy": noisy,
    }
    measure.publish(given.results, f"sharing-{given.scale:g}", result, plot)


if __name__ == "__main__":
    main()

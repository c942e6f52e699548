"""Whether indexes ever make a query slower: `make bench NAME=never-worse`.

Writes a table with filter columns of known selectivity, clustered and not, and sixteen columns to read. Indexes the
filter columns. Runs every query with the indexes on and off: same process, same files, rounds interleaved, warm.
The queries are a grid of selectivities, or with `--random 1000` so many drawn ones: one condition or two, each true of
0.0001% to 90% of the rows, and no rows are remembered, as if each query ran for the first time. The goal is that no
query is slower with indexes than without by more than 5% or 1 ms, whichever is more. What seems slower runs three
times as often before it counts. Reported are medians over the rounds of wall and CPU seconds, and what the scan said of
its choice, in the JSON to microseconds; and sums by powers of ten of the share of rows.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakemark

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
FILES = 4
ROW_GROUP_ROWS = 1 << 18
VALUES = 10_000
SHARES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.9, 0.99, 1.0)
SEED = 20_261_121
SLOWER_SHARE = 1.05
SLOWER_SECONDS = 0.001
# What seems slower runs so many times as often.
AGAIN = 3
FINE_VALUES = 1 << 24
# Drawn queries: the decimal logarithms of the shares that their conditions are true of.
LOG_SHARES = (-6.0, -0.0458)
RANGED = ("spread", "sorted", "word", "fine")

# A filter column, and what it is like.
FILTERS = {
    "spread": "whole numbers, each row on its own",
    "sorted": "the same numbers, ascending over the table",
    "word": "texts of twelve letters, each row on its own",
    "half": "two values, each row on its own",
    "fine": "whole numbers, nearly one for each row, each row on its own",
}
PAYLOAD = tuple(f"{kind}{number}" for kind, count in (("i", 8), ("d", 4), ("s", 4)) for number in range(count))


@dataclass(frozen=True)
class Query:
    """A statement and what is special about it."""

    filter: str
    share: float
    columns: int
    limit: int | None
    sql: str


def write_table(folder: Path, rows: int, compression: str) -> None:
    """Writes the table, unless one of so many rows is there."""
    done = folder / f"_rows-{rows}-{compression}-{len(FILTERS)}"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(SEED)
    per_file = rows // FILES
    letters = np.array([f"{number * 7_919 % 1_000_000_007:012d}" for number in range(VALUES)])
    for file in range(FILES):
        spread = rng.integers(0, VALUES, per_file)
        first = file * VALUES // FILES
        columns: dict[str, Any] = {
            "spread": pa.array(spread, pa.int32()),
            "sorted": pa.array(first + np.arange(per_file) * (VALUES // FILES) // per_file, pa.int32()),
            "word": pa.array(np.sort(letters)[rng.integers(0, VALUES, per_file)]),
            "half": pa.array(rng.integers(0, 2, per_file), pa.int16()),
            "fine": pa.array(rng.integers(0, FINE_VALUES, per_file), pa.int32()),
        }
        for name in PAYLOAD:
            numbers = rng.integers(0, 1 << 40, per_file)
            if name.startswith("i"):
                columns[name] = pa.array(numbers)
            elif name.startswith("d"):
                columns[name] = pa.array(numbers / 7.0)
            else:
                columns[name] = pa.array(letters[numbers % VALUES])
        path = folder / f"part-{file}.parquet"
        pq.write_table(
            pa.table(columns), path, row_group_size=ROW_GROUP_ROWS, compression=compression, write_page_index=True
        )
    done.touch()


def create_indexes(folder: Path) -> None:
    """Indexes the filter columns anew."""
    shutil.rmtree(folder / "_lakemark", ignore_errors=True)
    table = lakemark.Table(folder)
    for column in FILTERS:
        table.create_index(column, using="bitmap", build=False)
    table.build(progress=False)


def condition(column: str, share: float) -> str | None:
    """A condition on the column that is true of about that share of the rows; none where there is none."""
    if column == "half":
        return {0.5: "half = 1", 1.0: "half >= 0"}.get(share)
    if column == "word":
        bound = round(share * VALUES)
        return f"word < '{WORDS[bound]}'" if bound < VALUES else "word < 'x'"
    return f"{column} < {round(share * (FINE_VALUES if column == 'fine' else VALUES))}"


WORDS = sorted(f"{number * 7_919 % 1_000_000_007:012d}" for number in range(VALUES))


def drawn_condition(column: str, share: float, draw: random.Random) -> str:
    """A range that begins anywhere and holds about that share of the rows: one value at least."""
    values = FINE_VALUES if column == "fine" else VALUES
    width = max(1, min(values, round(share * values)))
    first = draw.randint(0, values - width)
    if column == "word":
        return f"word BETWEEN '{WORDS[first]}' AND '{WORDS[first + width - 1]}'"
    return f"{column} BETWEEN {first} AND {first + width - 1}"


def drawn_queries(count: int) -> Iterator[Query]:
    """Queries of one condition or two, of one column or several, some with a LIMIT; the same ones each time."""
    draw = random.Random(SEED)  # noqa: S311 - no secret
    for _ in range(count):
        columns = draw.sample(RANGED, draw.choice((1, 1, 2)))
        shares = [10 ** draw.uniform(*LOG_SHARES) for _ in columns]
        where = " AND ".join(
            drawn_condition(column, share, draw) for column, share in zip(columns, shares, strict=True)
        )
        name, share = "+".join(columns), min(shares)
        if draw.random() < 0.25:
            yield Query(name, share, 2, 10, f"SELECT i0, s0 FROM t WHERE {where} LIMIT 10")
        else:
            width = draw.choice((1, 4, 16))
            yield Query(name, share, width, None, f"SELECT {sums(width)} FROM t WHERE {where}")


def sums(count: int) -> str:
    """Sums over so many columns; every fourth first, so that each kind is among four."""
    names = [PAYLOAD[(place * 4 + place // 4) % 16] for place in range(count)]
    return ", ".join(f"sum(octet_length({name}))" if name.startswith("s") else f"sum({name})" for name in names)


def queries() -> Iterator[Query]:
    """Every query: sums over 1, 4 and 16 columns, and the first ten rows."""
    for column in FILTERS:
        for share in SHARES:
            where = condition(column, share)
            if where is None:
                continue
            for count in (1, 4, 16):
                yield Query(column, share, count, None, f"SELECT {sums(count)} FROM t WHERE {where}")
            yield Query(column, share, 2, 10, f"SELECT i0, s0 FROM t WHERE {where} LIMIT 10")


def open_session(folder: Path, *, use_index: bool, selection_cache: bool) -> lakemark.Session:
    """A session that knows the table."""
    session = lakemark.Session()
    session.sql(f"SET lakemark.selection_cache = {str(selection_cache).lower()}")
    session.sql(f"SET lakemark.use_index = {str(use_index).lower()}")
    session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{folder}'")
    return session


def choice(session: lakemark.Session, query: Query) -> str:
    """What the scan of a query does: `indexes` if it reads by indexes, `scan` where a scan is cheaper."""
    plan = str(session.sql(f"EXPLAIN {query.sql}").to_arrow().to_pydict())
    return "scan" if "scan_is_cheaper" in plan else "indexes"


def ask_all(folder: Path, rounds: int, asked: Iterable[Query], *, selection_cache: bool) -> list[dict[str, Any]]:
    """Runs every query in every round, with the indexes and without."""
    sessions = {
        name: open_session(folder, use_index=name == "on", selection_cache=selection_cache) for name in ("on", "off")
    }
    results = []
    for query in asked:
        answers = {name: session.sql(query.sql).to_arrow() for name, session in sessions.items()}
        if query.limit is None and not close(answers["on"], answers["off"]):
            raise AssertionError(f"{answers['on']} is not {answers['off']}: {query.sql}")
        found = summary(ask(sessions, query, rounds))
        if found["slower_seconds"]:
            found = {**summary(ask(sessions, query, rounds * AGAIN)), "asked_again": True}
        results.append({**asdict(query), "choice": choice(sessions["on"], query), **found})
        print(line(results[-1]), flush=True)
    return results


def ask(sessions: dict[str, lakemark.Session], query: Query, rounds: int) -> dict[str, list[measure.Cost]]:
    """What a query costs in each round, with the indexes and without."""
    costs: dict[str, list[measure.Cost]] = {name: [] for name in sessions}
    for turn in range(rounds):
        for name in ("on", "off") if turn % 2 else ("off", "on"):
            _, cost = measure.measure(lambda name=name: sessions[name].sql(query.sql).to_arrow())
            costs[name].append(cost)
    return costs


def close(one: pa.Table, other: pa.Table) -> bool:
    """Whether two rows of sums are the same; floating point depends on the order of rows."""
    pairs = zip(one.to_pylist()[0].values(), other.to_pylist()[0].values(), strict=True)
    return all(a == b or (a is not None and b is not None and abs(a - b) <= 1e-9 * abs(b)) for a, b in pairs)


def summary(costs: dict[str, list[measure.Cost]]) -> dict[str, Any]:
    """Medians, and whether the indexes made it slower than they may."""
    found: dict[str, Any] = {}
    for name, rounds in costs.items():
        found[f"{name}_seconds"] = statistics.median(cost.wall_seconds for cost in rounds)
        found[f"{name}_cpu_seconds"] = statistics.median(cost.cpu_seconds for cost in rounds)
        found[f"{name}_read_bytes"] = statistics.median(cost.read_bytes for cost in rounds)
    for kind in ("seconds", "cpu_seconds"):
        allowed = max(found[f"off_{kind}"] * SLOWER_SHARE, found[f"off_{kind}"] + SLOWER_SECONDS)
        found[f"slower_{kind}"] = found[f"on_{kind}"] > allowed
    return found


def line(result: dict[str, Any]) -> str:
    """One result as text."""
    what = f"{result['filter']:>13} {result['share']:9.4%} {result['columns']:2} columns"
    limit = "" if result["limit"] is None else f" LIMIT {result['limit']}"
    wall = f"{result['on_seconds'] * 1e3:8.2f} ms, without {result['off_seconds'] * 1e3:8.2f}"
    cpu = f"CPU {result['on_cpu_seconds'] * 1e3:8.2f}, without {result['off_cpu_seconds'] * 1e3:8.2f}"
    return f"{what + limit:<42} {result['choice']:>7}: {wall}; {cpu}{'  SLOWER' if result['slower_seconds'] else ''}"


def by_share(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How long queries take with indexes beside without, by LIMIT or none and by powers of ten of the share of rows."""
    groups: dict[tuple[bool, int], list[dict[str, Any]]] = {}
    for result in results:
        decade = min(-1, math.floor(math.log10(result["share"])))
        groups.setdefault((result["limit"] is not None, decade), []).append(result)
    return [
        {
            "limit": limit,
            "least_share": 10.0**decade,
            "queries": len(group),
            "with_indexes": sum(result["choice"] == "indexes" for result in group),
            "slower": sum(result["slower_seconds"] for result in group),
            **{
                f"{kind}_ratio": sum(r[f"on_{kind}"] for r in group) / sum(r[f"off_{kind}"] for r in group)
                for kind in ("seconds", "cpu_seconds")
            },
        }
        for (limit, decade), group in sorted(groups.items())
    ]


def rounded(result: dict[str, Any]) -> dict[str, Any]:
    """Seconds to microseconds."""
    return {name: round(value, 6) if name.endswith("seconds") else value for name, value in result.items()}


def plot(everything: dict[str, Any], path: Path) -> None:
    """Draws how many times as fast each query is with indexes, by the share of rows."""
    figure, axes = plt.subplots(figsize=(9, 5))
    for choice, color in (("indexes", "tab:blue"), ("scan", "tab:orange")):
        for limit, marker in ((None, "o"), (10, "x")):
            chosen = [q for q in everything["queries"] if (q["choice"], q["limit"]) == (choice, limit)]
            ratios = [query["off_seconds"] / query["on_seconds"] for query in chosen]
            label = f"{choice}{'' if limit is None else f', LIMIT {limit}'} ({len(chosen)})"
            axes.scatter([q["share"] for q in chosen], ratios, s=14, c=color, marker=marker, label=label)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="share of rows of the narrowest condition", ylabel="times as fast")
    axes.set_title(f"{len(everything['queries'])} queries with indexes, N = {everything['rows']:,}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Writes, indexes, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--filter", default="", help="only filter columns whose name holds this")
    parser.add_argument("--random", type=int, default=0, help="so many drawn queries instead of the grid")
    parser.add_argument("--compression", default="snappy", help="of the data files; none where snappy is unoptimised")
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    folder = CACHE / "never-worse"
    write_table(folder, given.rows, given.compression)
    create_indexes(folder)
    asked = drawn_queries(given.random) if given.random else queries()
    results = ask_all(
        folder,
        given.rounds,
        (query for query in asked if given.filter in query.filter),
        selection_cache=not given.random,
    )
    slower = [result for result in results if result["slower_seconds"]]
    profile = os.environ.get("LAKEMARK_PROFILE", "dev")
    everything = {
        "rows": given.rows,
        "rounds": given.rounds,
        "profile": profile,
        "compression": given.compression,
        "machine": measure.machine(),
        "random": given.random,
        "slower": len(slower),
        "slower_seconds_total": sum(result["on_seconds"] - result["off_seconds"] for result in slower),
        "on_seconds": sum(result["on_seconds"] for result in results),
        "off_seconds": sum(result["off_seconds"] for result in results),
        "by_share": by_share(results),
        "queries": [rounded(result) for result in results],
    }
    for group in everything["by_share"]:
        print("; ".join(f"{name} {value:.4g}" for name, value in group.items()))
    name = f"never-worse-{given.rows}{'-random' if given.random else ''}"
    total = {name: everything[f"{name}_seconds"] for name in ("on", "off")}
    print(f"all of them: {total['on']:.2f} s with indexes, {total['off']:.2f} s without")
    print(f"{len(slower)} of {len(results)} queries are slower with indexes by more than 5% and 1 ms")
    measure.publish(given.out, name, everything, plot)


if __name__ == "__main__":
    main()

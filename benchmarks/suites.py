"""Whole benchmarks beside the engine's own tables and DuckDB.

`make bench NAME=tpcds` runs one of them; `tpch`, `ssb` and `clicks` are the others.

Every query runs in each way to read the same Parquet files, in one process and in turn:

```text
engine         DataFusion's own Parquet tables, in a session of the same build with DataFusion's own settings
engine again   the same once more: what noise alone does
plain          Lakemark without an index
proposed       with indexes on what `advise` proposes for all of the queries
all            with `auto` on every column of the dimensions, on the keys of the facts and on what conditions name
duckdb         DuckDB on the Parquet files
```

A query is slower if the median of its rounds, each beside the engine's of the same round, is above 1.05 times and 1 ms.
What seems slower runs nine times and then 27 times before it counts.
It does not count if the engine beside itself is slower, too.
What takes the engine longer than 20 seconds runs in one round.
`savable` is the share of a query's CPU that row sets could save at most.
All answers are equal, in any order, floats to nine digits; DuckDB's to six, as it gives averages of decimals as floats.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clicks
import duckdb
import matplotlib as mpl
import measure
import savable
import ssb
import tpc
from answers import is_close, rows_of

import lakemark

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    Ask = Callable[[str], pa.Table]

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
ENGINE, AGAIN, PLAIN, PROPOSED, ALL, DUCKDB = "engine", "engine again", "plain", "proposed", "all", "duckdb"
OURS = (PLAIN, PROPOSED, ALL)
SLOWER_SHARE, SLOWER_SECONDS = 1.05, 0.001
ENOUGH_ROUNDS = 9
# Single rounds vary by a tenth: of 9 the median is sure to some 4 hundredths, of 27 to 2.
CHECKED_ROUNDS = (ENOUGH_ROUNDS, 27)
PATIENCE_SECONDS = 20.0
# What sessions of ours set otherwise.
ENGINE_SETTINGS = {"datafusion.optimizer.hash_join_single_partition_threshold": 1 << 20}
# Tables with more rows than this are facts.
FACT_ROWS = 1_000_000


def suite(name: str, scale: float) -> tuple[Path, dict[str, str]]:
    """The folder of the tables, and the queries by name."""
    folder = CACHE / f"{name}-{scale:g}"
    if name in ("ssb", "clicks"):
        return folder, dict((ssb if name == "ssb" else clicks).generate(folder, scale))
    queries = tpc.generate("tpcds" if name == "tpcds" else "tpch", folder, scale)
    return folder, {f"Q{number}": sql for number, sql in enumerate(queries, 1)}


def files_of(folder: Path, table: str) -> str:
    """The Parquet files of a table, for DuckDB."""
    return f"{folder}/{table}/*.parquet"


def session(folder: Path, kind: str, store: Path | None = None) -> Ask:
    """A session of ours over all tables: the engine's own, or Lakemark's with a store."""
    made = lakemark.connect()
    for name, value in ENGINE_SETTINGS.items() if kind == "PARQUET" else ():
        made.sql(f"SET {name} = {value}")
    for table in tpc.tables(folder):
        options = "" if store is None else f"OPTIONS (store '{store / table}')"
        made.sql(f"CREATE EXTERNAL TABLE {table} STORED AS {kind} LOCATION '{folder / table}/' {options}")
    return lambda sql: made.sql(sql).to_arrow()


def judge(folder: Path) -> Ask:
    """DuckDB over the files."""
    connection = duckdb.connect()
    for table in tpc.tables(folder):
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files_of(folder, table)}')")
    return lambda sql: connection.execute(sql).to_arrow_table()


def index_all(folder: Path, store: Path) -> None:
    """Lets `auto` choose an index for every column of the dimensions, and for keys and filter columns of the facts."""
    for name in tpc.tables(folder):
        table = lakemark.Table(folder / name, store=store / name)
        if table.indexes:
            continue
        is_fact = table.info().rows > FACT_ROWS
        for column in table.schema.names:
            if not is_fact or is_condition(column):
                table.create_index(column, build=False)
        table.build(progress=False)


def is_condition(column: str) -> bool:
    """Whether a column of a fact names a row of a dimension, or stands in conditions."""
    return column.endswith(("_sk", "key")) or column in (*clicks.FILTERED, *ssb.FILTERED, *tpc.FILTERED)


def index_proposed(folder: Path, store: Path, queries: Sequence[str]) -> None:
    """Makes the indexes that `advise` proposes for the queries."""
    session = lakemark.connect()
    tables = {name: session.table(folder / name, name, store=store / name) for name in tpc.tables(folder)}
    if any(table.indexes for table in tables.values()):
        return
    for name, advice in session.advise(queries).items():
        for index in advice.indexes:
            options = {"encoding": index.encoding} if index.kind == "bitmap" else {}
            tables[name].create_index(index.column, index.kind, build=False, **options)
        if advice.indexes:
            tables[name].build(progress=False)


def asks_of(folder: Path, queries: Mapping[str, str], chosen: Sequence[str]) -> dict[str, Ask]:
    """The chosen ways to read the tables, by name."""
    stores = {name: folder.with_name(f"{folder.name}-{name}") for name in OURS}
    if PROPOSED in chosen:
        index_proposed(folder, stores[PROPOSED], list(queries.values()))
    if ALL in chosen:
        index_all(folder, stores[ALL])
    opened: dict[str, Callable[[], Ask]] = {
        ENGINE: lambda: session(folder, "PARQUET"),
        AGAIN: lambda: session(folder, "PARQUET"),
        **{name: lambda name=name: session(folder, "LAKEMARK", stores[name]) for name in OURS},
        DUCKDB: lambda: judge(folder),
    }
    return {name: opened[name]() for name in opened if name in chosen}


def other_answers(answers: Mapping[str, Counter[tuple[Any, ...]]]) -> list[str]:
    """The ways whose answer is not the engine's."""

    def is_same(way: str, rows: Counter[tuple[Any, ...]]) -> bool:
        return is_close(rows, answers[ENGINE]) if way == DUCKDB else rows == answers[ENGINE]

    return [way for way, rows in answers.items() if not is_same(way, rows)]


def ask_all(asks: Mapping[str, Ask], queries: Mapping[str, str], rounds: int) -> list[dict[str, Any]]:
    """Runs every query in every round; one that the engine cannot answer is left out, other failures are reported."""
    results = []
    for name, sql in queries.items():
        answers, failed = {}, {}
        is_long = False
        for way, ask in asks.items():
            began = time.perf_counter()
            answer = answer_of(ask, sql)
            is_long |= way == ENGINE and time.perf_counter() - began > PATIENCE_SECONDS
            if isinstance(answer, str):
                failed[way] = answer
            else:
                answers[way] = answer
        found: dict[str, Any] = {"query": name, "failed": failed, "rows": 0}
        if ENGINE in answers:
            found["rows"] = answers[ENGINE].total()
            found["other_answers"] = other_answers(answers)
            ways = {way: ask for way, ask in asks.items() if way in answers}
            costs = ask_rounds(ways, sql, 1 if is_long else rounds)
            for enough in () if is_long else CHECKED_ROUNDS:
                if any(is_slower(costs, way) for way in ways if way in OURS):
                    costs = ask_rounds(ways, sql, max(rounds, enough))
            found |= summary(costs) | {"savable": savable.savable_share(asks[ENGINE], sql)}
        results.append(found)
        print(line(found), flush=True)
    return results


def answer_of(ask: Ask, sql: str) -> Counter[tuple[Any, ...]] | str:
    """The rows, or what went wrong."""
    try:
        return rows_of(ask(sql))
    except (lakemark.LakemarkError, duckdb.Error) as error:
        return str(error).splitlines()[0]


def ask_rounds(asks: Mapping[str, Ask], sql: str, rounds: int) -> dict[str, list[measure.Cost]]:
    """What a query costs in each round; the order of the ways changes."""
    costs: dict[str, list[measure.Cost]] = {way: [] for way in asks}
    ways = list(asks)
    for turn in range(rounds):
        for way in measure.in_turn(ways, turn):
            _, cost = measure.measure(lambda way=way: asks[way](sql))
            costs[way].append(cost)
    return costs


def ratio(costs: Mapping[str, list[measure.Cost]], way: str) -> float:
    """The median of how many times as long as the engine it took, round by round."""
    return pair_ratio(*walls(costs, way))


def is_slower(costs: Mapping[str, list[measure.Cost]], way: str) -> bool:
    """Whether it took longer than the engine may beside itself."""
    return is_longer(*walls(costs, way))


def walls(costs: Mapping[str, list[measure.Cost]], way: str) -> tuple[list[float], list[float]]:
    """The wall seconds of a way and of the engine, round by round."""
    mine, engine = ([cost.wall_seconds for cost in costs[name]] for name in (way, ENGINE))
    return mine, engine


def pair_ratio(mine: Sequence[float], base: Sequence[float]) -> float:
    """The median of how many times as long rounds took as those of what they are compared with, pair by pair."""
    return statistics.median(one / other for one, other in zip(mine, base, strict=True))


def is_longer(mine: Sequence[float], base: Sequence[float]) -> bool:
    """Whether rounds took longer than those of what they are compared with, pair by pair, by the median."""
    pairs = zip(mine, base, strict=True)
    return statistics.median(one - other * SLOWER_SHARE for one, other in pairs) > SLOWER_SECONDS


def summary(costs: Mapping[str, list[measure.Cost]]) -> dict[str, Any]:
    """Medians, ratios, and who is slower."""
    noisy = AGAIN in costs and is_slower(costs, AGAIN)
    return {
        "seconds": {way: statistics.median(cost.wall_seconds for cost in paid) for way, paid in costs.items()},
        "cpu_seconds": {way: statistics.median(cost.cpu_seconds for cost in paid) for way, paid in costs.items()},
        "read_bytes": {way: statistics.median(cost.read_bytes for cost in paid) for way, paid in costs.items()},
        "ratio": {way: ratio(costs, way) for way in costs if way != ENGINE},
        "rounds": len(costs[ENGINE]),
        "slower": [way for way in OURS if way in costs and is_slower(costs, way) and not noisy],
    }


def line(found: Mapping[str, Any]) -> str:
    """One result as text."""
    times = ", ".join(f"{way} {seconds * 1e3:.1f}" for way, seconds in found.get("seconds", {}).items())
    remarks = [f"{way.upper()} SLOWER" for way in found.get("slower", [])]
    remarks += [f"{way} has another answer" for way in found.get("other_answers", [])]
    remarks += [f"{way} fails: {error}" for way, error in found["failed"].items()]
    return f"{found['query']:>5} {found['rows']:>6} rows, ms: {times}{'; ' if remarks else ''}{'; '.join(remarks)}"


def totals(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """For each way: the sum of its times, the geometric mean of its ratios, and how many queries are slower."""
    asked = [found for found in results if "seconds" in found]
    ways = {way for found in asked for way in found["seconds"]}
    return {
        way: {
            "seconds": sum(found["seconds"].get(way, math.nan) for found in asked),
            "mean_ratio": statistics.geometric_mean(found["ratio"].get(way, 1.0) for found in asked),
            "worst_ratio": max(found["ratio"].get(way, 1.0) for found in asked),
            "slower": sum(way in found["slower"] for found in asked),
        }
        for way in (ENGINE, AGAIN, *OURS, DUCKDB)
        if way in ways
    }


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the ratios of each way, sorted."""
    figure, axes = plt.subplots(figsize=(9, 5))
    for way in result["totals"]:
        ratios = sorted(found["ratio"][way] for found in result["queries"] if way in found.get("ratio", {}))
        if ratios:
            axes.plot(range(1, len(ratios) + 1), ratios, marker=".", label=way)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(yscale="log", xlabel="queries, by their ratio", ylabel="times as long as the engine's own tables")
    axes.set_title(f"{result['suite']}, scale {result['scale']:g}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Generates, indexes, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=("tpcds", "tpch", "ssb", "clicks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", default="", help="only these, such as Q21,Q39")
    parser.add_argument("--ways", default=",".join((ENGINE, AGAIN, *OURS, DUCKDB)), help="only these; engine always")
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    folder, queries = suite(given.suite, given.scale)
    chosen = [name for name in given.queries.split(",") if name]
    asked = {name: sql for name, sql in queries.items() if not chosen or name in chosen}
    results = ask_all(asks_of(folder, queries, [ENGINE, *given.ways.split(",")]), asked, given.rounds)
    result = {
        "suite": given.suite,
        "scale": given.scale,
        "profile": os.environ.get("LAKEMARK_PROFILE", "dev"),
        "machine": measure.machine(),
        "totals": totals(results),
        "queries": results,
    }
    header = ("way", "sum, s", "mean ratio", "worst", "slower")
    shown = [
        (way, f"{t['seconds']:.2f}", f"{t['mean_ratio']:.2f}", f"{t['worst_ratio']:.2f}", f"{t['slower']:.0f}")
        for way, t in result["totals"].items()
    ]
    measure.print_table(header, shown)
    print(f"mean ratio if row sets save half of what they could: {savable.reachable_ratio(results):.2f}")
    measure.publish(given.results, f"{given.suite}-{given.scale:g}", result, plot)


if __name__ == "__main__":
    main()

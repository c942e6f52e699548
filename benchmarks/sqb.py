"""The Set Query Benchmark: `make bench NAME=sqb [ROWS=10000000]`.

Writes table BENCH, builds bitmap indexes on its thirteen columns, and runs the benchmark's 75 counts. They run as SQL
text of Lakemark, by its counting call (`Table.count`), and by its peers (`sqb_peers.py`). The SQL text runs once more
where Lakemark may not remember the rows that it found before (`SET lakemark.selection_cache = false`), and where the
indexes are switched off. Same process, same rows, interleaved rounds, warm. All must give equal answers. Reported are
medians of the rounds, the size of every index, and how far Lakemark is from what the machine allows (`limits.py`),
warm and cold. There Lakemark remembers no rows, so that every count reads the index, from the page cache or from disk.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import limits
import matplotlib as mpl
import measure
import polars as pl
import sqb_peers
import sqb_table

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
BYTES_PER_ROW_GOAL = 17.5
# In these ways Lakemark reads the index for every count.
FORGETFUL = ("lakemark, cache off", "lakemark, count(), cache off")
# How many times the CPU time of Lakemark the others should take.
CPU_GOALS = {"datafusion": 50.0, "duckdb native": 10.0, "lance": 5.0}


def build_indexes(folder: Path) -> tuple[lakemark.Table, dict[str, Any]]:
    """Indexes the table anew; returns it and what that took."""
    shutil.rmtree(folder / "_lakemark", ignore_errors=True)
    table = lakemark.Table(folder)
    for column in sqb_table.COLUMNS:
        # As in the paper: the constants that KSEQ is compared with have two digits.
        options = {"precision": 2} if column == "KSEQ" else {}
        table.create_index(column, using="bitmap", build=False, **options)
    _, cost = measure.measure(lambda: table.build(progress=False))
    return table, {"wall_seconds": cost.wall_seconds, "cpu_seconds": cost.cpu_seconds}


def index_sizes(table: lakemark.Table, rows: int) -> dict[str, dict[str, float]]:
    """Bytes of every index, by column."""
    sizes = {}
    for index in table.indexes:
        sizes[index.column] = {"bytes": index.bytes, "bytes_per_row": index.bytes / rows}
    missing = set(sqb_table.COLUMNS) - set(sizes)
    if missing:
        raise AssertionError(f"no index on {sorted(missing)}")
    return sizes


def store_bytes(folder: Path) -> int:
    """Bytes of everything in the store, manifests too."""
    return sum(path.stat().st_size for path in (folder / "_lakemark").rglob("*") if path.is_file())


def engines_of_lakemark(folder: Path) -> dict[str, Callable[[str], int]]:
    """Lakemark by each of its ways: each takes the SQL text and returns the count."""
    indexed, forgetful, unindexed = lakemark.connect(), lakemark.connect(), lakemark.connect()
    forgetful.sql("SET lakemark.selection_cache = false")
    unindexed.sql("SET lakemark.use_index = false")
    for session in (indexed, forgetful, unindexed):
        session.table(folder, name="bench")
    counting = lakemark.Table(folder)
    return {
        "lakemark": lambda sql: indexed.sql(sql).to_arrow().column("n")[0].as_py(),
        "lakemark, cache off": lambda sql: forgetful.sql(sql).to_arrow().column("n")[0].as_py(),
        "lakemark, indexes off": lambda sql: unindexed.sql(sql).to_arrow().column("n")[0].as_py(),
        # Without SQL around the condition, as with Lance.
        "lakemark, count()": lambda sql: counting.count(sql.split(" WHERE ", 1)[1]),
        "lakemark, count(), cache off": lambda sql: counting.count(sql.split(" WHERE ", 1)[1], selection_cache=False),
    }


def engines(folder: Path) -> dict[str, Callable[[str], int]]:
    """All engines."""
    return {**engines_of_lakemark(folder), **sqb_peers.peers(folder)}


def work_of(table: lakemark.Table, condition: str) -> limits.Work:
    """What a count of the condition takes of the index, directories aside."""
    table.explain(condition, count=True, selection_cache=False)
    report = table.explain(condition, count=True, selection_cache=False)
    # The directory alone answers one condition: no row is looked at.
    leaves = report.leaves if len(report.leaves) > 1 else []
    values = sum(limits.values_of(leaf.rows or 0, report.rows_total) for leaf in leaves)
    return limits.Work(report.index_bytes_read, report.index_reads, values)


def cold_rounds(folder: Path, ask: Callable[[str], int], queries: dict[str, str], rounds: int) -> list[list[float]]:
    """Wall seconds as [round][query], each query after the table's files and indexes have left the page cache."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    costs = []
    for _ in range(rounds):
        row = []
        for sql in queries.values():
            limits.forget(files)
            _, cost = measure.measure(lambda sql=sql: ask(sql))
            row.append(cost.wall_seconds)
        costs.append(row)
    return costs


def against_limits(
    folder: Path,
    table: lakemark.Table,
    queries: dict[str, str],
    costs: dict[str, list[list[measure.Cost]]],
    rounds: int,
) -> dict[str, Any]:
    """T* by group of queries, cold and warm, and how many times as long Lakemark takes."""
    allowed = limits.measure_limits(folder.parent)
    work = [work_of(table, sql.split(" WHERE ", 1)[1]) for sql in queries.values()]
    asks = {name: engines_of_lakemark(folder)[name] for name in FORGETFUL}
    before = limits.disk_bytes()
    took = {"cold": {name: cold_rounds(folder, ask, queries, rounds) for name, ask in asks.items()}}
    cold_bytes = (limits.disk_bytes() - before) / rounds / len(asks)
    took["warm"] = {name: [[cost.wall_seconds for cost in row] for row in costs[name]] for name in asks}
    result: dict[str, Any] = {
        "machine": {state: asdict(limit) for state, limit in allowed.items()},
        "index_bytes": sum(one.bytes for one in work),
        "index_reads": sum(one.reads for one in work),
        "values": sum(one.values for one in work),
        "disk_bytes_cold": cold_bytes,
    }
    for state, limit in allowed.items():
        result[state] = {
            group: {
                "least_seconds": (least := sum(limit.seconds(work[n]) for n in chosen)),
                "seconds": (
                    seconds := {
                        name: statistics.median(sum(row[n] for n in chosen) for row in rows)
                        for name, rows in took[state].items()
                    }
                ),
                "times_least": {name: value / least for name, value in seconds.items()},
            }
            for group, chosen in groups(list(queries)).items()
        }
    return result


def groups(names: list[str]) -> dict[str, list[int]]:
    """The ordinals of the queries of each group, and of all."""
    result = {
        group: [n for n, name in enumerate(names) if name.startswith(group)]
        for group in ("Q1", "Q2A", "Q2B", "Q3A", "Q3B", "Q4A", "Q4B")
    }
    return {**result, "all": list(range(len(names)))}


def run(rows: int, rounds: int) -> dict[str, Any]:
    """Writes, indexes, runs the queries and measures."""
    folder = CACHE / f"sqb-{rows}"
    start = time.perf_counter()
    parquet_bytes = sqb_table.write_table(folder, rows)
    print(f"table BENCH: {rows:,} rows, {parquet_bytes / 1e6:.1f} MB of Parquet, {time.perf_counter() - start:.1f} s")
    table, build = build_indexes(folder)
    sizes = index_sizes(table, rows)
    queries = sqb_table.queries()
    answers, costs = measure.interleave(engines(folder), list(queries.values()), rounds)
    index_bytes = sum(size["bytes"] for size in sizes.values())
    return {
        "benchmark": "Set Query Benchmark, the 75 counts",
        "rows": rows,
        "rounds": rounds,
        "profile": build_profile(),
        "machine": measure.machine(),
        "versions": {
            "lakemark": lakemark.__version__,
            "datafusion": datafusion.__version__,
            "duckdb": duckdb.__version__,
            "polars": pl.__version__,
            "lance": sqb_peers.lance_version(),
        },
        "parquet_bytes": parquet_bytes,
        "store_bytes": store_bytes(folder),
        "index_bytes": index_bytes,
        "index_bytes_per_row": index_bytes / rows,
        "index_bytes_per_row_goal": BYTES_PER_ROW_GOAL,
        "indexes": sizes,
        "build": {**build, "nanoseconds_per_value_cpu": build["cpu_seconds"] * 1e9 / rows / len(sizes)},
        "limits": against_limits(folder, table, queries, costs, rounds),
        "answers": dict(zip(queries, answers, strict=True)),
        "medians": {group: measure.medians(costs, chosen) for group, chosen in groups(list(queries)).items()},
        "query_wall_medians": {
            name: {engine: measure.medians({engine: costs[engine]}, [n])[engine]["wall_seconds"] for engine in costs}
            for n, name in enumerate(queries)
        },
    }


def build_profile() -> str:
    """How the library was compiled, as the caller says: only release numbers mean anything."""
    return os.environ.get("LAKEMARK_PROFILE", "unknown")


def report(result: dict[str, Any]) -> None:
    """Prints the result as tables."""
    rows = result["rows"]
    print(f"\n{'index':8}{'bytes':>14}{'bytes/row':>11}")
    for column, size in result["indexes"].items():
        print(f"{column:8}{size['bytes']:14,}{size['bytes_per_row']:11.3f}")
    print(f"{'all':8}{result['index_bytes']:14,}{result['index_bytes_per_row']:11.3f}   goal {BYTES_PER_ROW_GOAL}")
    build = result["build"]
    per_value = build["nanoseconds_per_value_cpu"]
    print(f"built in {build['wall_seconds']:.2f} s, {per_value:.1f} ns of CPU per value, N = {rows:,}")
    header = ("queries", "engine", "wall ms", "CPU ms", "MB read", "x wall", "x CPU")
    print("\n" + "{:8}{:30}{:>11}{:>11}{:>10}{:>9}{:>9}".format(*header))
    for group, engines_ in result["medians"].items():
        ours = engines_["lakemark"]
        for name, cost in engines_.items():
            wall, cpu = cost["wall_seconds"], cost["cpu_seconds"]
            print(
                f"{group:8}{name:30}{wall * 1e3:11.2f}{cpu * 1e3:11.2f}{cost['read_bytes'] / 1e6:10.2f}"
                f"{wall / ours['wall_seconds']:9.1f}{cpu / max(ours['cpu_seconds'], 1e-6):9.1f}"
            )
    report_limits(result["limits"])
    everything = result["medians"]["all"]
    print(f"\nwarm, all {len(result['answers'])} counts, equal answers; how many times as long the others take:")
    for name, goal in CPU_GOALS.items():
        if name in everything:
            # Each is compared with us by the same way: by SQL text, or by a call with a condition.
            ours = everything["lakemark, count()" if name == "lance" else "lakemark"]
            wall, cpu = (everything[name][kind] / ours[kind] for kind in ("wall_seconds", "cpu_seconds"))
            print(
                f"{name:22}{wall:6.1f} wall{cpu:6.1f} CPU   goal {goal:.0f} CPU: {'met' if cpu >= goal else 'missed'}"
            )


def report_limits(found: dict[str, Any]) -> None:
    """Prints T* and the ratios to it."""
    for state, limit in found["machine"].items():
        bandwidth, reads = limit["bytes_per_second"] / 1e6, limit["reads_per_second"]
        print(f"\n{state}: {bandwidth:,.0f} MB/s in order, {reads:,.0f} reads/s of 4 KiB, ", end="")
        print(f"{limit['nanoseconds_per_value']:.2f} ns a value, {limit['cores']} cores")
        print("{:8}{:30}{:>11}{:>11}{:>9}".format("queries", "engine", "wall ms", "T* ms", "x T*"))
        for group, at in found[state].items():
            for name, seconds in at["seconds"].items():
                least, times = at["least_seconds"], at["times_least"][name]
                print(f"{group:8}{name:30}{seconds * 1e3:11.2f}{least * 1e3:11.2f}{times:9.1f}")
    print(
        f"read of the index: {found['index_bytes'] / 1e6:.2f} MB in {found['index_reads']:,} reads, directories aside; "
        f"from disk when cold: {found['disk_bytes_cold'] / 1e6:.2f} MB"
    )


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws wall time by group of queries, the same beside T*, and bytes per row by column."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(20, 4.5))
    names = list(result["medians"]["all"])
    group_names = list(result["medians"])
    width = 0.8 / len(names)
    for ordinal, name in enumerate(names):
        heights = [result["medians"][group][name]["wall_seconds"] * 1e3 for group in group_names]
        left.bar([place + ordinal * width for place in range(len(group_names))], heights, width, label=name)
    left.set_xticks([place + 0.4 - width / 2 for place in range(len(group_names))], group_names)
    left.set_yscale("log")
    left.set_ylabel("warm wall time, ms (median, log)")
    left.set_title(f"Set Query Benchmark, N = {result['rows']:,}")
    left.legend(fontsize="small")
    plot_limits(result["limits"], middle)
    columns = list(result["indexes"])
    right.bar(columns, [result["indexes"][column]["bytes_per_row"] for column in columns])
    right.set_ylabel("bytes per row")
    right.set_title(f"equality indexes: {result['index_bytes_per_row']:.2f} B per row in total")
    right.tick_params(axis="x", rotation=60)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_limits(found: dict[str, Any], axes: Axes) -> None:
    """Draws what counts take that read the index, beside what the machine allows."""
    bars: dict[str, list[float]] = {}
    for state in found["machine"]:
        bars[f"{state}: T*"] = [at["least_seconds"] for at in found[state].values()]
        for name in FORGETFUL:
            bars[f"{state}: {name}"] = [at["seconds"][name] for at in found[state].values()]
    width = 0.8 / len(bars)
    for ordinal, (name, heights) in enumerate(bars.items()):
        places = [place + ordinal * width for place in range(len(heights))]
        axes.bar(places, [height * 1e3 for height in heights], width, label=name)
    names = list(found["warm"])
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(names))], names)
    axes.set_yscale("log")
    axes.set_ylabel("wall time, ms (median, log)")
    axes.set_title("counts that read the index, and T*")
    axes.legend(fontsize="small")


if __name__ == "__main__":
    measure.run_rounds("sqb", __doc__, run, report, plot)

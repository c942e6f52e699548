"""Looking up single keys: `make bench NAME=keys [ROWS=10000000]`.

Writes a table of many row groups. Builds an index of the kind `key` on each of its key columns and on two of them
together, a `summary` on the key in random order and a `bloom_tree` on the key in order. Looks up keys that are there
and keys that are not, by our calls and SQL and by the peers. These are DataFusion with and without Parquet Bloom
filters, DuckDB's own table with and without its index, and Lance with its B-tree and its Bloom filter. Same process,
interleaved, equal answers. Three columns of sixteen are looked up beside an index that includes them, too. Reported
are the medians and the 99th percentiles of a lookup, the reads and bytes of ours, and the sizes and costs of all
indexes. `--builds` builds the indexes and looks nothing up, for tables that peers take too long for.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import keys_covering
import keys_table
import matplotlib as mpl
import measure
import numpy as np
from kept import kept

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    Ask = Callable[[int], list[int]]

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
# Bytes per row; `random` can hardly take fewer: 64 bits of key and place have no redundancy.
GOALS: dict[str, float] = {"ordered": 4.8, "permuted": 4.8, "twelve": 4.8, "random": 8.0, "pk": 4.8, "att1": 4.8}
# Kinds that say where a key is not, each on the column that it is for.
ZONES = {"summary": "permuted", "bloom_tree": "ordered"}
# What the indexes are on, by the names that results show: kind and columns.
INDEXES: dict[str, tuple[str, list[str]]] = {
    **{column: ("key", [column]) for column in keys_table.KEYS},
    "twelve and permuted": ("key", ["twelve", "permuted"]),
    **{f"{column}, {kind}": (kind, [column]) for kind, column in ZONES.items()},
}


BUILD = """
import json, sys, measure, lakemark
folder, store, kind, *columns = sys.argv[1:]
table = lakemark.Table(folder, store=store)
_, cost = measure.measure(lambda: table.create_index(columns, using=kind, progress=False))
print(json.dumps({
    "wall_seconds": cost.wall_seconds, "cpu_seconds": cost.cpu_seconds, "peak_bytes": measure.process_memory("VmHWM"),
}))
"""


def build(folder: Path, store: Path, kind: str, columns: list[str]) -> dict[str, Any]:
    """Builds one index in a process of its own, so that its peak of memory is known."""
    return measure.run_apart(BUILD, str(folder), str(store), kind, *columns)


def store_of(folder: Path, kind: str, columns: int = 1) -> Path:
    """The store of the indexes of a kind: in one store a search would take the index that knows most."""
    name = kind if columns == 1 else f"{kind}-of-{columns}"
    return folder.with_name(f"{folder.name}-indexes-{name}")


def build_indexes(folder: Path, rows: int) -> dict[str, Any]:
    """Bytes and cost of every index."""
    stores = {name: store_of(folder, kind, len(columns)) for name, (kind, columns) in INDEXES.items()}
    for store in stores.values():
        shutil.rmtree(store, ignore_errors=True)
    costs = {}
    for name, (kind, columns) in INDEXES.items():
        costs[name] = build(folder, stores[name], kind, columns)
        print(f"{name}: {costs[name]['wall_seconds']:.1f} s", flush=True)
    tables = [lakemark.Table(folder, store=store) for store in set(stores.values())]
    sizes = {(index.kind, *index.columns): index.bytes for table in tables for index in table.indexes}
    return {
        name: {
            "bytes": sizes[(kind, *columns)],
            "bytes_per_row": sizes[(kind, *columns)] / rows,
            # The goal is that of a `key` on one column.
            "goal_bytes_per_row": GOALS.get(name),
            "rows_per_second": rows / costs[name]["wall_seconds"],
            **costs[name],
        }
        for name, (kind, columns) in INDEXES.items()
    }


def bloom_copy(folder: Path, rows: int, row_groups: int) -> Path:
    """The same rows with Parquet Bloom filters on the key, as DataFusion writes them."""
    copy = folder.with_name(f"{folder.name}-bloom")
    with kept(copy) as is_missing:
        for path in sorted(folder.glob("*.parquet")) if is_missing else ():
            context = datafusion.SessionContext()
            context.register_parquet("t", str(path))
            group_rows = max(1, rows // row_groups)
            context.sql(
                f"COPY (SELECT permuted, p0 FROM t) TO '{copy / path.name}' STORED AS PARQUET OPTIONS ("
                f"'format.max_row_group_size' '{group_rows}', 'format.compression' 'zstd(3)', "
                "'format.bloom_filter_enabled::permuted' 'true', "
                f"'format.bloom_filter_ndv::permuted' '{group_rows}')"
            ).collect()
    return copy


def duckdb_table(folder: Path, *, indexed: bool) -> Ask:
    """DuckDB's own table, with or without its index on the key."""
    name = "art" if indexed else "native"
    path = folder.with_name(f"{folder.name}-{name}.duckdb")
    made = path.exists()
    connection = duckdb.connect(str(path))
    if not made:
        connection.execute(f"CREATE TABLE t AS SELECT permuted, p0 FROM read_parquet('{folder}/*.parquet')")
        if indexed:
            connection.execute("CREATE UNIQUE INDEX by_key ON t (permuted)")
        connection.execute("CHECKPOINT")
    return lambda key: [
        row[0] for row in connection.execute(f"SELECT p0 FROM t WHERE permuted = {key} ORDER BY p0").fetchall()
    ]


def datafusion_table(folder: Path, column: str = "permuted") -> Ask:
    """DataFusion's own package on Parquet files."""
    config = datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    context = datafusion.SessionContext(config)
    context.register_parquet("t", str(folder))

    def ask(key: int) -> list[int]:
        batches = context.sql(f"SELECT p0 FROM t WHERE {column} = {key}").collect()
        return sorted(value for batch in batches for value in batch.column(0).to_pylist())

    return ask


def lance_table(folder: Path, kind: str) -> Ask:
    """Lance with one of its indexes on the key."""
    import lance
    import pyarrow.dataset as pads

    path = folder.with_name(f"{folder.name}-{kind.lower()}.lance")
    if not path.exists():
        columns = ["permuted", "p0"]
        made = lance.write_dataset(pads.dataset(sorted(map(str, folder.glob("*.parquet")))).scanner(columns), str(path))
        made.create_scalar_index("permuted", kind)
    dataset = lance.dataset(str(path))
    return lambda key: sorted(dataset.to_table(columns=["p0"], filter=f"permuted = {key}").column("p0").to_pylist())


def lookup_table(folder: Path, kind: str, column: str) -> Ask:
    """Our lookup with an index of a kind."""
    table = lakemark.Table(folder, store=store_of(folder, kind))
    return lambda key: sorted(table.lookup([key], ["p0"], on=column).to_arrow()["p0"].to_pylist())


def ordered_engines(folder: Path) -> dict[str, Ask]:
    """Those that look up the key in order."""
    return {
        "lakemark lookup": lookup_table(folder, "key", "ordered"),
        "lakemark lookup, bloom_tree": lookup_table(folder, "bloom_tree", "ordered"),
        "datafusion": datafusion_table(folder, "ordered"),
    }


def pair_engines(folder: Path) -> dict[str, Callable[[tuple[int, int]], list[int]]]:
    """Those that look up values of `twelve` and `permuted` together."""
    table = lakemark.Table(folder, store=store_of(folder, "key", 2))
    context = datafusion.SessionContext(
        datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    )
    context.register_parquet("t", str(folder))

    def by_datafusion(pair: tuple[int, int]) -> list[int]:
        found = context.sql(f"SELECT p0 FROM t WHERE twelve = {pair[0]} AND permuted = {pair[1]}").collect()
        return sorted(value for batch in found for value in batch.column(0).to_pylist())

    return {
        "lakemark lookup": lambda pair: sorted(
            table.lookup([pair], ["p0"], on=["twelve", "permuted"]).to_arrow()["p0"].to_pylist()
        ),
        "datafusion": by_datafusion,
    }


def pairs_of(folder: Path, keys: list[int]) -> list[tuple[int, int]]:
    """The values of `twelve` and `permuted` in the rows of these keys, in the order of the keys."""
    table = lakemark.Table(folder, store=store_of(folder, "key"))
    found = table.lookup(keys, ["permuted", "twelve"], on="permuted").to_arrow()
    twelve = dict(zip(found["permuted"].to_pylist(), found["twelve"].to_pylist(), strict=True))
    return [(twelve[key], key) for key in keys]


def engines(folder: Path, rows: int, row_groups: int) -> dict[str, Ask]:
    """All that look up the key in random order: each takes a key and returns its values of p0, sorted."""
    session = lakemark.connect()
    session.table(folder, name="t", store=store_of(folder, "key"))

    def by_sql(key: int) -> list[int]:
        found = session.sql(f"SELECT p0 FROM t WHERE permuted = {key}").to_arrow()
        return sorted(found["p0"].to_pylist())

    found: dict[str, Ask] = {
        "lakemark lookup": lookup_table(folder, "key", "permuted"),
        "lakemark lookup, summary": lookup_table(folder, "summary", "permuted"),
        "lakemark SQL": by_sql,
        "datafusion": datafusion_table(folder),
        "datafusion, Bloom filters": datafusion_table(bloom_copy(folder, rows, row_groups)),
        "duckdb native": duckdb_table(folder, indexed=False),
        "duckdb native, index": duckdb_table(folder, indexed=True),
    }
    if importlib.util.find_spec("lance") is None:
        print("Lance is not installed and is left out: pip install --requirement benchmarks/requirements.txt")
        return found
    return {
        **found,
        "lance BTREE": lance_table(folder, "BTREE"),
        "lance BLOOMFILTER": lance_table(folder, "BLOOMFILTER"),
    }


def look_up(asks: dict[str, Any], keys: list[Any], expected: int) -> dict[str, dict[str, float]]:
    """Every engine looks up every key, in turn; each answer has `expected` rows."""
    return measure.look_up(asks, keys, lambda _, found: len(found) == expected)


def index_reads(folder: Path, kind: str, columns: list[str], keys: list[tuple[int, ...]]) -> dict[str, float]:
    """Reads and bytes of the index for keys not looked up before, and rows left to read; the directories are open."""
    table = lakemark.Table(folder, store=store_of(folder, kind, len(columns)))
    rows = table.indexes[0].rows
    wheres = [" AND ".join(f"{column} = {value}" for column, value in zip(columns, key, strict=True)) for key in keys]
    table.explain(wheres[0])
    reports = [table.explain(where, selection_cache=False) for where in wheres]
    return {
        "reads": statistics.mean(report.index_reads for report in reports),
        "bytes": statistics.mean(report.index_bytes_read for report in reports),
        "rows_left": statistics.mean(measure.rows_to_read(report, rows) for report in reports),
    }


def build_all(rows: int, row_groups: int) -> tuple[Path, dict[str, Any]]:
    """Writes the table and builds every index; the folder, and what is known of table, machine and indexes."""
    folder = CACHE / f"keys-{rows}-{row_groups}"
    start = time.perf_counter()
    parquet_bytes = keys_table.write_table(folder, rows, row_groups)
    seconds = time.perf_counter() - start
    print(f"{rows:,} rows, {row_groups:,} row groups, {parquet_bytes / 1e6:.0f} MB, {seconds:.1f} s", flush=True)
    return folder, {
        "benchmark": "lookups of single keys",
        "rows": rows,
        "row_groups": row_groups,
        "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
        "machine": measure.machine(),
        "versions": {
            "lakemark": lakemark.__version__,
            "datafusion": datafusion.__version__,
            "duckdb": duckdb.__version__,
        },
        "parquet_bytes": parquet_bytes,
        "indexes": build_indexes(folder, rows),
    }


def run(rows: int, row_groups: int, probes: int) -> dict[str, Any]:
    """Writes, builds, looks up."""
    folder, built = build_all(rows, row_groups)
    asks, ordered, pairs = engines(folder, rows, row_groups), ordered_engines(folder), pair_engines(folder)
    random = np.random.default_rng(7)
    # Even numbers are keys; odd ones lie between them, where no statistics of a row group show that they are not there.
    hits = [2 * int(key) for key in random.choice(rows, probes, replace=False)]
    misses = [2 * int(key) + 1 for key in random.choice(rows, probes, replace=False)]
    fresh = [2 * int(key) for key in random.choice(rows, min(rows, 100), replace=False)]
    hit_pairs, fresh_pairs = pairs_of(folder, hits), pairs_of(folder, fresh)
    miss_pairs = [(twelve, key + 1) for twelve, key in hit_pairs]
    single = {"hit": [(key,) for key in fresh], "miss": [(key + 1,) for key in fresh]}
    double = {"hit": fresh_pairs, "miss": [(twelve, key + 1) for twelve, key in fresh_pairs]}
    asked = {f"key on {column}": ("key", [column], single) for column in ZONES.values()}
    asked |= {f"{kind} on {column}": (kind, [column], single) for kind, column in ZONES.items()}
    asked["key on twelve and permuted"] = ("key", ["twelve", "permuted"], double)
    return {
        **built,
        "probes": probes,
        "hit": look_up(asks, hits, 1),
        "miss": look_up(asks, misses, 0),
        "ordered": {"hit": look_up(ordered, hits, 1), "miss": look_up(ordered, misses, 0)},
        "pairs": {"hit": look_up(pairs, hit_pairs, 1), "miss": look_up(pairs, miss_pairs, 0)},
        "covering": keys_covering.run(folder, store_of(folder, "key"), rows, fresh),
        "index_per_lookup": {
            name: {sort: index_reads(folder, kind, columns, keys) for sort, keys in sorts.items()}
            for name, (kind, columns, sorts) in asked.items()
        },
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def report(result: dict[str, Any]) -> None:
    """Prints the result as tables."""
    report_builds(result)
    report_lookups("a lookup, random order", result)
    report_lookups("a lookup, in order", result["ordered"])
    report_lookups("a lookup, two columns", result["pairs"])
    keys_covering.report(result["covering"])
    print(f"\n{'index, of a new key':28}{'':6}{'reads':>8}{'bytes':>10}{'rows left':>14}")
    for name, sorts in result["index_per_lookup"].items():
        for sort, cost in sorts.items():
            print(f"{name:28}{sort:6}{cost['reads']:8.2f}{cost['bytes']:10,.0f}{cost['rows_left']:14,.1f}")


def report_builds(result: dict[str, Any]) -> None:
    """Prints sizes and costs of the indexes."""
    print(f"\n{'index':22}{'B/row':>8}{'goal':>6}{'M rows/s':>10}{'ns CPU/row':>12}{'peak MB':>9}")
    for name, cost in result["indexes"].items():
        print(
            f"{name:22}{cost['bytes_per_row']:8.2f}{cost['goal_bytes_per_row'] or '':6}"
            f"{cost['rows_per_second'] / 1e6:10.2f}{cost['cpu_seconds'] * 1e9 / result['rows']:12.0f}"
            f"{cost['peak_bytes'] / 1e6:9.0f}"
        )


def report_lookups(title: str, result: dict[str, Any]) -> None:
    """Prints what a lookup cost every engine."""
    print(f"\n{title:28}{'':6}{'median ms':>10}{'p99 ms':>9}{'CPU ms':>9}{'KB read':>10}{'x':>8}")
    for kind in ("hit", "miss"):
        ours = result[kind]["lakemark lookup"]["wall_ms"]
        for name, cost in result[kind].items():
            print(
                f"{name:28}{kind:6}{cost['wall_ms']:10.3f}{cost['wall_ms_p99']:9.3f}{cost['cpu_ms']:9.3f}"
                f"{cost['read_bytes'] / 1e3:10.1f}{cost['wall_ms'] / ours:8.1f}"
            )


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the time of a lookup and the size of every index."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8))
    names = list(result["hit"])
    places = np.arange(len(names))
    for shift, kind in ((-0.2, "hit"), (0.2, "miss")):
        left.barh(places + shift, [result[kind][name]["wall_ms"] for name in names], 0.38, label=kind)
    left.set_yticks(places, names)
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlabel("median of a lookup, ms (log)")
    left.set_title(f"{result['rows']:,} rows in {result['row_groups']:,} row groups, key in random order")
    left.legend()
    draw_costs(right, result, "bytes_per_row", 1, "bytes per row")
    right.set_title("indexes, of the kind key unless named")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_builds(result: dict[str, Any], path: Path) -> None:
    """Draws what every index takes: bytes, time to build, memory to build."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.8))
    draw_costs(axes[0], result, "bytes_per_row", 1, "bytes per row")
    draw_costs(axes[1], result, "rows_per_second", 1e6, "million rows a second")
    draw_costs(axes[2], result, "peak_bytes", 1e6, "peak of memory, MB")
    figure.suptitle(f"{result['rows']:,} rows in {result['row_groups']:,} row groups")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_costs(axis: Axes, result: dict[str, Any], cost: str, unit: float, label: str) -> None:
    """One bar for each index."""
    names = list(result["indexes"])
    axis.bar(names, [result["indexes"][name][cost] / unit for name in names])
    axis.set_ylabel(label)
    axis.tick_params(axis="x", rotation=75)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (10,000,000 for the goals)")
    parser.add_argument("--row-groups", type=int, default=1_000, help="row groups of the table (10,000 for the goals)")
    parser.add_argument("--probes", type=int, default=100, help="keys that are looked up")
    parser.add_argument("--builds", action="store_true", help="build the indexes and look nothing up")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for JSON and plot")
    arguments = parser.parse_args()
    if arguments.builds:
        _, result = build_all(arguments.rows, arguments.row_groups)
        report_builds(result)
        measure.publish(arguments.results, f"keys-builds-{arguments.rows}", result, plot_builds)
        return
    result = run(arguments.rows, arguments.row_groups, arguments.probes)
    report(result)
    measure.publish(arguments.results, f"keys-{arguments.rows}", result, plot)


if __name__ == "__main__":
    main()

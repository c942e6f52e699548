"""Keys wider than a number: `make bench NAME=wide-keys [ROWS=1000000]`.

Writes a table whose keys are a customer and a day, a UUID in a text, and another text of 36 bytes, in no order. Builds
an index of the kind `key` on each, and on the last one another with `hashed`. Looks up keys that are there and keys
that are not, beside DataFusion's own scan of the same files: same process, in turn, equal answers. Reported are the
bytes of each index by row, the reads of an index for a key, the rows that are left to read, and the medians and 99th
percentiles of a lookup.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import matplotlib as mpl
import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Ask = Callable[[tuple[Any, ...]], list[int]]

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
FILES = 16
SEED = 20_261_130
FIRST_DAY = dt.date(2021, 1, 1)
DAYS = 1826
ROWS_OF_CUSTOMER = 12
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Index:
    """An index, and the most bytes that it may take for a row."""

    columns: tuple[str, ...]
    options: dict[str, object] = field(default_factory=dict)
    goal: float | None = None


INDEXES = {
    "customer and day": Index(("customer", "day"), goal=4.0),
    "UUID": Index(("request",), goal=20.0),
    "text of 36 bytes, hashed": Index(("session",), {"hashed": True}, goal=4.8),
    "text of 36 bytes": Index(("session",)),
}

BUILD = """
import json, sys, measure, lakemark
folder, store, columns, options = sys.argv[1:]
table = lakemark.Table(folder, store=store)
create = lambda: table.create_index(json.loads(columns), using="key", progress=False, **json.loads(options))
index, cost = measure.measure(create)
print(json.dumps({
    "wall_seconds": cost.wall_seconds, "cpu_seconds": cost.cpu_seconds, "peak_bytes": measure.process_memory("VmHWM"),
}))
"""


def write_table(folder: Path, rows: int, row_groups: int) -> None:
    """Writes the table, unless it is there."""
    with kept(folder) as is_missing:
        for ordinal in range(FILES) if is_missing else ():
            first, last = rows * ordinal // FILES, rows * (ordinal + 1) // FILES
            random = np.random.default_rng([SEED, ordinal])
            columns = columns_of(random, last - first, max(1, rows // ROWS_OF_CUSTOMER))
            path = folder / f"part-{ordinal:02}.parquet"
            pq.write_table(columns, path, compression="zstd", row_group_size=max(1, rows // row_groups))


def columns_of(random: np.random.Generator, rows: int, customers: int) -> pa.Table:
    """Rows anywhere: customers are numbered from 1, and texts differ in each row."""
    first = (FIRST_DAY - dt.date(1970, 1, 1)).days
    days = random.integers(first, first + DAYS, rows, dtype=np.int32)
    return pa.table(
        {
            "customer": random.integers(1, customers + 1, rows),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "request": requests(random, rows),
            "session": [f"session/{text}" for text in digits(random, rows, 28)],
            "p0": random.integers(0, 2**40, rows),
            "p1": random.integers(0, 2**40, rows),
        }
    )


def digits(random: np.random.Generator, rows: int, count: int) -> list[str]:
    """As many hexadecimal digits for each row."""
    text = random.bytes(rows * count // 2).hex()
    return [text[start : start + count] for start in range(0, rows * count, count)]


def requests(random: np.random.Generator, rows: int) -> list[str]:
    """Random UUIDs of version 4."""
    return [f"{d[:8]}-{d[8:12]}-4{d[12:15]}-a{d[15:18]}-{d[18:30]}" for d in digits(random, rows, 30)]


def store_of(folder: Path, name: str) -> Path:
    """The store of an index: in one store a search would take the index that knows most."""
    return folder.with_name(f"{folder.name}-{name.replace(',', '').replace(' ', '-')}")


def build(folder: Path, rows: int) -> dict[str, dict[str, Any]]:
    """Builds every index in a process of its own; bytes and costs."""
    built = {}
    for name, index in INDEXES.items():
        store = store_of(folder, name)
        shutil.rmtree(store, ignore_errors=True)
        cost = measure.run_apart(BUILD, str(folder), str(store), json.dumps(index.columns), json.dumps(index.options))
        size = lakemark.Table(folder, store=store).indexes[0].bytes
        built[name] = {
            "bytes": size,
            "bytes_per_row": size / rows,
            "goal_bytes_per_row": index.goal,
            "rows_per_second": rows / cost["wall_seconds"],
            **cost,
        }
        print(f"{name}: {size / rows:.2f} bytes a row, {cost['wall_seconds']:.1f} s", flush=True)
    return built


def condition(columns: Sequence[str], key: Sequence[Any]) -> str:
    """The condition that a row has a key."""

    def literal(value: object) -> str:
        return (
            f"DATE '{value}'" if isinstance(value, dt.date) else f"'{value}'" if isinstance(value, str) else f"{value}"
        )

    return " AND ".join(f"{column} = {literal(value)}" for column, value in zip(columns, key, strict=True))


def engines(folder: Path, name: str) -> dict[str, Ask]:
    """Our lookup, and DataFusion's scan: each takes a key and returns its values of p0, sorted."""
    columns = INDEXES[name].columns
    table = lakemark.Table(folder, store=store_of(folder, name))
    config = datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    context = datafusion.SessionContext(config)
    context.register_parquet("t", str(folder))

    def by_lookup(key: tuple[Any, ...]) -> list[int]:
        found = table.lookup([key if len(columns) > 1 else key[0]], ["p0"], on=list(columns))
        return sorted(found.to_arrow()["p0"].to_pylist())

    def by_scan(key: tuple[Any, ...]) -> list[int]:
        batches = context.sql(f"SELECT p0 FROM t WHERE {condition(columns, key)}").collect()
        return sorted(value for batch in batches for value in batch.column(0).to_pylist())

    return {"lakemark lookup": by_lookup, "datafusion": by_scan}


def keys_of(folder: Path, name: str, count: int, seed: int) -> dict[str, list[tuple[Any, ...]]]:
    """Keys of some rows, and as many that no row has."""
    columns = list(INDEXES[name].columns)
    random = np.random.default_rng(seed)
    rows = pq.read_table(folder / f"part-{seed % FILES:02}.parquet", columns=columns)
    places = random.choice(rows.num_rows, min(count, rows.num_rows), replace=False)
    hits = [tuple(row.values()) for row in rows.take(places).to_pylist()]
    if name != "customer and day":
        others = columns_of(random, len(hits), 1).select(columns).to_pylist()
        return {"hit": hits, "miss": [tuple(row.values()) for row in others]}
    pairs = pq.read_table(folder, columns=columns)
    held = set(zip(pairs["customer"].to_pylist(), pairs["day"].to_pylist(), strict=True))
    between = ((customer, FIRST_DAY + dt.timedelta(days=n)) for customer, _ in hits for n in range(seed, DAYS))
    misses: dict[int, tuple[Any, ...]] = {}
    for customer, day in between:
        if customer not in misses and (customer, day) not in held:
            misses[customer] = (customer, day)
    return {"hit": hits, "miss": list(misses.values())}


def index_reads(folder: Path, name: str, keys: list[tuple[Any, ...]]) -> dict[str, float]:
    """Reads and bytes of the index for a key, and the rows left to read. Directories and inner pages are known."""
    table = lakemark.Table(folder, store=store_of(folder, name))
    rows = table.indexes[0].rows
    wheres = [condition(INDEXES[name].columns, key) for key in keys]
    half = len(wheres) // 2
    for where in wheres[:half]:
        table.explain(where, selection_cache=False)
    reports = [table.explain(where, selection_cache=False) for where in wheres[half:]]
    return {
        "reads": statistics.mean(report.index_reads for report in reports),
        "most_reads": max(report.index_reads for report in reports),
        "bytes": statistics.mean(report.index_bytes_read for report in reports),
        "rows_left": statistics.mean(measure.rows_to_read(report, rows) for report in reports),
    }


def run(rows: int, row_groups: int, probes: int) -> dict[str, Any]:
    """Writes, builds, looks up."""
    folder = CACHE / f"wide-keys-{rows}-{row_groups}"
    write_table(folder, rows, row_groups)
    result: dict[str, Any] = {
        "benchmark": "keys wider than a number",
        "rows": rows,
        "row_groups": row_groups,
        "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
        "machine": measure.machine(),
        "versions": {"lakemark": lakemark.__version__, "datafusion": datafusion.__version__},
        "probes": probes,
        "indexes": build(folder, rows),
        "lookups": {},
        "index_per_lookup": {},
    }
    for name in INDEXES:
        asks, keys = engines(folder, name), keys_of(folder, name, probes, 3)
        result["lookups"][name] = {
            "hit": measure.look_up(asks, keys["hit"], lambda _, found: len(found) > 0),
            "miss": measure.look_up(asks, keys["miss"], lambda _, found: not found),
        }
        fresh = keys_of(folder, name, 400, 5)
        result["index_per_lookup"][name] = {sort: index_reads(folder, name, keys) for sort, keys in fresh.items()}
    result["missed_goals"] = missed(result)
    return result


def missed(result: dict[str, Any]) -> list[str]:
    """What is above its goal."""
    sizes = [
        f"{name}: {cost['bytes_per_row']:.2f} bytes a row, not {cost['goal_bytes_per_row']}"
        for name, cost in result["indexes"].items()
        if cost["goal_bytes_per_row"] is not None and cost["bytes_per_row"] > cost["goal_bytes_per_row"]
    ]
    reads = [
        f"{name}, {sort}: {cost['reads']:.2f} reads of {cost['bytes']:,.0f} bytes, not one of {PAGE_BYTES:,}"
        for name, sorts in result["index_per_lookup"].items()
        for sort, cost in sorts.items()
        if cost["most_reads"] > 1 or cost["bytes"] > PAGE_BYTES
    ]
    return sizes + reads


def report(result: dict[str, Any]) -> None:
    """Prints the result as tables."""
    sizes = [
        (
            name,
            f"{cost['bytes_per_row']:.2f}",
            f"{cost['goal_bytes_per_row'] or ''}",
            f"{cost['rows_per_second'] / 1e6:.2f}",
            f"{cost['peak_bytes'] / 1e6:.0f}",
        )
        for name, cost in result["indexes"].items()
    ]
    measure.print_table(("index on", "bytes a row", "goal", "million rows a second", "peak, MB"), sizes)
    reads = [
        (f"{name}, {sort}", f"{cost['reads']:.2f}", f"{cost['bytes']:,.0f}", f"{cost['rows_left']:.3f}")
        for name, sorts in result["index_per_lookup"].items()
        for sort, cost in sorts.items()
    ]
    measure.print_table(("a lookup in the index", "reads", "bytes", "rows left to read"), reads)
    times = [
        (f"{name}, {sort}", engine, f"{cost['wall_ms']:.2f}", f"{cost['wall_ms_p99']:.2f}", f"{cost['cpu_ms']:.2f}")
        for name, sorts in result["lookups"].items()
        for sort, engines_of in sorts.items()
        for engine, cost in engines_of.items()
    ]
    measure.print_table(("a lookup", "by", "median, ms", "99th of a hundred, ms", "CPU, ms"), times)
    for goal in result["missed_goals"]:
        print(f"missed: {goal}")


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the size of every index and the time of a lookup."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8))
    names = list(result["indexes"])
    places = np.arange(len(names))
    left.barh(places, [result["indexes"][name]["bytes_per_row"] for name in names], 0.6)
    left.set_xlabel("bytes a row")
    left.set_title(f"{result['rows']:,} rows")
    for shift, engine in ((-0.2, "lakemark lookup"), (0.2, "datafusion")):
        times = [result["lookups"][name]["hit"][engine]["wall_ms"] for name in names]
        right.barh(places + shift, times, 0.38, label=engine)
    right.set_xscale("log")
    right.set_xlabel("median of a lookup, ms (log)")
    right.legend()
    for axis in (left, right):
        axis.set_yticks(places, names)
        axis.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table, which the goals are for")
    parser.add_argument("--row-groups", type=int, default=1_000, help="row groups of the table")
    parser.add_argument("--probes", type=int, default=100, help="keys that are looked up")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for JSON and plot")
    arguments = parser.parse_args()
    result = run(arguments.rows, arguments.row_groups, arguments.probes)
    report(result)
    measure.publish(arguments.results, f"wide-keys-{arguments.rows}", result, plot)


if __name__ == "__main__":
    main()

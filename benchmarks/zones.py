"""Trees of Bloom filters on the relation of the thesis: `make bench NAME=zones [ROWS=4194304]`.

Builds an index of the kind `bloom_tree` on each key of relation R (zones_table.py) for every probability of a false
positive. Zones have 16 rows (a page of the thesis) or our own 20,000. An index of the kind `key` stands beside them.
Reported are bytes, factors against the B+-tree of the thesis, zones that a search reads in vain, and the time of a
search. Reported are also what ranges read, searches at several hit rates, and from which probability on a lookup is as
cheap as with `key`. All trees of a column are searched in turn in one process, and every answer is compared with
DuckDB's.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import matplotlib as mpl
import measure
import numpy as np
import pyarrow as pa
import zones_model
import zones_table

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
FPPS = (0.2, 0.1, 1.9e-2, 1.8e-3, 1.72e-4, 1.5e-7, 1e-15)
SHIPDATE_FPPS = (0.2, 1e-2, 1e-4)
# 16 tuples of 256 bytes are the page of the thesis; the other one is what `bloom_tree` takes if nothing is said.
ZONE_ROWS = (16, 20_000)
AVERAGE_TUPLES = {"pk": 1.0, "att1": 11.0, "shuffled": 1.0}
RANGES = (0.01, 0.05, 0.10, 0.20)
HIT_RATES = (0.0, 0.05, 0.10, 0.25, 1.0)
# A lookup is as cheap as another one if it takes at most so much of its time: less is noise.
AS_CHEAP = 1.05


@dataclass(frozen=True)
class Tree:
    """An index: of the kind `bloom_tree`, or `key` if it has no zones."""

    column: str
    zone_rows: int | None = None
    fpp: float | None = None

    @property
    def name(self) -> str:
        """What it is called in results."""
        return "key" if self.fpp is None else f"{self.fpp:g}"

    def build(self, folder: Path) -> tuple[lakemark.Table, float]:
        """Builds it in a store of its own; returns the table with this index and the seconds that it took."""
        store = folder / "stores" / f"{self.column}-{self.zone_rows}-{self.name}"
        shutil.rmtree(store, ignore_errors=True)
        table = lakemark.Table(folder / "r", store=store)
        start = time.perf_counter()
        if self.fpp is None:
            table.create_index(self.column, using="key", progress=False)
        else:
            options = {"fpp": self.fpp, "zone_rows": self.zone_rows}
            table.create_index(self.column, using="bloom_tree", progress=False, **options)
        return table, time.perf_counter() - start


class Column:
    """A key of R, and what is right: the rows of each of its values."""

    def __init__(self, folder: Path, name: str, values: np.ndarray) -> None:
        self.name, self.values, self.folder = name, values, folder
        self.sorted = np.sort(values)

    def array(self, keys: list[int]) -> pa.Array:
        """Keys as the column has them."""
        numbers = pa.array(keys, pa.int64())
        return numbers.cast(pa.int32()).cast(pa.date32()) if self.name == "shipdate" else numbers

    def present(self, random: np.random.Generator, wanted: int) -> list[int]:
        """Values that are there, each once."""
        distinct = np.unique(self.sorted)
        return [int(value) for value in random.choice(distinct, min(wanted, len(distinct)), replace=False)]

    def absent(self, random: np.random.Generator, wanted: int) -> list[int]:
        """Values that are not there, between those that are."""
        gaps = np.unique(self.sorted)[:-1] + 1
        return [int(value) for value in random.choice(gaps, min(wanted, len(gaps)), replace=False)]

    def truth(self, keys: list[int]) -> dict[int, list[int]]:
        """For each key what DuckDB finds in p0, sorted."""
        wanted = pa.table({"number": pa.array(keys), "key": self.array(keys)})
        connection = duckdb.connect()
        connection.register("wanted", wanted)
        found = connection.execute(
            f"SELECT number, list(p0 ORDER BY p0) FROM read_parquet('{self.folder}/r/*.parquet') r "
            f"JOIN wanted ON r.{self.name} = wanted.key GROUP BY number"
        ).fetchall()
        return {**{key: [] for key in keys}, **dict(found)}

    def ask(self, table: lakemark.Table) -> Callable[[int], list[int]]:
        """Looks a key up; returns p0, sorted."""

        def ask(key: int) -> list[int]:
            return sorted(table.lookup(self.array([key]), ["p0"], on=self.name).to_arrow()["p0"].to_pylist())

        return ask

    def zones_with(self, key: int, zone_rows: int) -> int:
        """How many zones have rows of the key."""
        return len(np.unique(np.flatnonzero(self.values == key) // zone_rows))


def build_all(
    folder: Path, trees: list[Tree], rows: int
) -> tuple[dict[Tree, lakemark.Table], dict[Tree, dict[str, Any]]]:
    """Builds the indexes; returns for each its table and its size."""
    tables, sizes = {}, {}
    for tree in trees:
        table, seconds = tree.build(folder)
        size = table.indexes[0].bytes
        tables[tree] = table
        sizes[tree] = {"bytes": size, "bytes_per_row": size / rows, "build_seconds": seconds}
    return tables, sizes


def factors(tree: Tree, size: int, rows: int) -> dict[str, Any]:
    """How many times smaller than the B+-tree it is, beside what the thesis says of its own."""
    average = AVERAGE_TUPLES[tree.column]
    formula = zones_model.bplus_bytes(rows, average)
    measured = "att1" if tree.column == "att1" else "pk"
    # The B+-tree that the thesis built over 2^22 tuples, for so many.
    built = zones_model.PAGES_BPLUS[measured] * zones_model.PAGE_BYTES * rows / 2**22
    result: dict[str, Any] = {"factor_formula": formula / size, "factor_built": built / size}
    if tree.fpp is not None:
        pages = zones_model.PAGES[measured].get(tree.fpp)
        result["thesis_formula"] = formula / zones_model.bloom_bytes(rows, average, tree.fpp)
        result["thesis_built"] = zones_model.PAGES_BPLUS[measured] / pages if pages else None
        result["thesis_false_reads"] = zones_model.FALSE_READS[measured].get(tree.fpp)
    return result


def searched(column: Column, table: lakemark.Table, tree: Tree, keys: list[int]) -> dict[str, float]:
    """Reads of the index, and zones that are read in vain, on average over the keys."""
    table.explain(f"{column.name} = {keys[0]}", selection_cache=False)
    reports = [table.explain(f"{column.name} = {key}", selection_cache=False) for key in keys]
    result = {
        "index_reads": statistics.mean(report.index_reads for report in reports),
        "index_bytes": statistics.mean(report.index_bytes_read for report in reports),
    }
    if tree.zone_rows is not None:
        rows = len(column.values)
        zones = [math.ceil(measure.rows_to_read(report, rows) / tree.zone_rows) for report in reports]
        false = [met - column.zones_with(key, tree.zone_rows) for met, key in zip(zones, keys, strict=True)]
        if min(false) < 0:
            raise AssertionError(f"{tree} leaves a zone out that has a key")
        result["false_zones"] = statistics.mean(false)
    return result


def ranges(column: Column, table: lakemark.Table, random: np.random.Generator, each: int) -> dict[str, float]:
    """Rows that scans of ranges read, for each row that passes."""
    result = {}
    rows = len(column.values)
    for share in RANGES:
        read = []
        for start in random.integers(0, rows - int(rows * share), each):
            low, high = column.sorted[start], column.sorted[start + int(rows * share)]
            condition = f"{column.name} >= {low} AND {column.name} < {high}"
            passing = int(np.searchsorted(column.sorted, high) - np.searchsorted(column.sorted, low))
            if table.count(condition) != passing:
                raise AssertionError(f"{condition} has {passing} rows")
            report = table.explain(condition, selection_cache=False)
            read.append(measure.rows_to_read(report, rows) / passing)
        result[f"{share:g}"] = statistics.mean(read)
    return result


def sweep(folder: Path, column: Column, zone_rows: int, probes: int, ranges_each: int) -> dict[str, dict[str, Any]]:
    """One column and one size of zones: every probability, and `key`."""
    random = np.random.default_rng(11)
    trees = [Tree(column.name, zone_rows, fpp) for fpp in FPPS] + [Tree(column.name)]
    tables, sizes = build_all(folder, trees, len(column.values))
    hits, misses = column.present(random, probes), column.absent(random, probes)
    truth = column.truth(hits + misses)
    # First the counters: they also open every directory, which the times do not pay for.
    result = {
        tree.name: {
            **sizes[tree],
            **factors(tree, sizes[tree]["bytes"], len(column.values)),
            "searches_hit": searched(column, tables[tree], tree, hits),
            "searches_miss": searched(column, tables[tree], tree, misses),
            "range_rows_read": ranges(column, tables[tree], np.random.default_rng(13), ranges_each),
        }
        for tree in trees
    }
    asks = {tree.name: column.ask(tables[tree]) for tree in trees}
    for kind, keys in (("hit", hits), ("miss", misses)):
        for name, cost in measure.look_up(asks, keys, lambda key, found: found == truth[key]).items():
            result[name][kind] = cost
    print(f"{column.name}, zones of {zone_rows:,} rows: done")
    return result


def break_even(result: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """The greatest probability with which a lookup takes no longer than with `key`."""
    found = {}
    for kind in ("hit", "miss"):
        limit = result["key"][kind]["wall_ms"] * AS_CHEAP
        cheap = [fpp for fpp in FPPS if result[f"{fpp:g}"][kind]["wall_ms"] <= limit]
        found[kind] = max(cheap, default=None)
    return found


def hit_rates(folder: Path, column: Column, zone_rows: int, probes: int) -> dict[str, Any]:
    """Searches of which a part finds something, on days of 2,400 tuples."""
    random = np.random.default_rng(17)
    trees = [Tree(column.name, zone_rows, fpp) for fpp in SHIPDATE_FPPS] + [Tree(column.name)]
    tables, sizes = build_all(folder, trees, len(column.values))
    asks = {tree.name: column.ask(tables[tree]) for tree in trees}
    result: dict[str, Any] = {"bytes": {tree.name: sizes[tree]["bytes"] for tree in trees}}
    # Keys in turn, so that none is looked up twice while there are others: rows found are remembered.
    there, not_there = column.present(random, len(column.values)), column.absent(random, len(column.values))
    truth = column.truth(there + not_there)
    days = {True: itertools.cycle(there), False: itertools.cycle(not_there)}
    for rate in HIT_RATES:
        hits = random.permutation(np.arange(probes) < round(rate * probes))
        keys = [next(days[bool(hit)]) for hit in hits]
        costs = measure.look_up(asks, keys, lambda key, found: found == truth[key])
        result[f"{rate:g}"] = {name: cost["wall_ms_mean"] for name, cost in costs.items()}
    return result


def run(rows: int, probes: int, ranges_each: int) -> dict[str, Any]:
    """Writes, builds, searches."""
    folder = CACHE / f"zones-{rows}"
    values = zones_table.write_table(folder / "r", rows)
    columns = {name: Column(folder, name, values[name]) for name in (*AVERAGE_TUPLES, "shipdate")}
    result = {
        "benchmark": "trees of Bloom filters",
        "rows": rows,
        "probes": probes,
        "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
        "machine": measure.machine(),
        "versions": {"lakemark": lakemark.__version__, "duckdb": duckdb.__version__},
        "parquet_bytes": (folder / "r" / "r.parquet").stat().st_size,
        "thesis_heights": {
            name: {
                "bplus": zones_model.bplus_height(rows, average),
                **{f"{fpp:g}": zones_model.bloom_height(rows, average, fpp) for fpp in FPPS},
            }
            for name, average in AVERAGE_TUPLES.items()
        },
        "sweeps": {
            name: {
                str(zone_rows): sweep(folder, columns[name], zone_rows, probes, ranges_each) for zone_rows in ZONE_ROWS
            }
            for name in AVERAGE_TUPLES
        },
        "hit_rates": {
            str(zone_rows): hit_rates(folder, columns["shipdate"], zone_rows, probes) for zone_rows in ZONE_ROWS
        },
    }
    result["break_even"] = {
        name: {zone_rows: break_even(found) for zone_rows, found in sweeps.items()}
        for name, sweeps in result["sweeps"].items()
    }
    result["machine"]["load_after"] = os.getloadavg()[0]
    shutil.rmtree(folder / "stores")
    return result


def number(value: float | None, decimals: int = 2) -> str:
    """A number of a table; a dash for none."""
    return "-" if value is None else f"{value:,.{decimals}f}"


def report(result: dict[str, Any]) -> None:
    """Prints the result as tables."""
    for column, sweeps in result["sweeps"].items():
        for zone_rows, found in sweeps.items():
            print(f"\n{column}, zones of {int(zone_rows):,} rows, {result['rows']:,} tuples")
            report_sweep(found)
            print(f"\nas cheap as key from fpp: {result['break_even'][column][zone_rows]}")
    for zone_rows, found in result["hit_rates"].items():
        print(f"\nshipdate, zones of {int(zone_rows):,} rows: mean ms of a search at each hit rate")
        rates = [f"{rate:g}" for rate in HIT_RATES]
        names = list(found["bytes"])
        measure.print_table(
            ["fpp", "bytes", *(f"{float(rate):.0%}" for rate in rates)],
            [[name, f"{found['bytes'][name]:,}", *(number(found[rate][name]) for rate in rates)] for name in names],
        )


def report_sweep(found: dict[str, dict[str, Any]]) -> None:
    """Prints one column with one size of zones."""
    header = ["fpp", "bytes", "B/row", "x smaller", "thesis, formulas", "x, its B+-tree built", "thesis, built"]
    header += ["false zones, hit", "thesis", "false zones, miss", "reads", "KB", "ms, hit", "ms, miss"]
    header += [f"range {share:.0%}" for share in RANGES]
    rows = []
    for name, tree in found.items():
        hit, miss = tree["searches_hit"], tree["searches_miss"]
        row = [name, f"{tree['bytes']:,}", number(tree["bytes_per_row"], 3), number(tree["factor_formula"], 1)]
        row += [number(tree.get("thesis_formula"), 1), number(tree["factor_built"], 1)]
        row += [number(tree.get("thesis_built"), 1), number(hit.get("false_zones"), 3)]
        row += [number(tree.get("thesis_false_reads")), number(miss.get("false_zones"), 3)]
        row += [number(hit["index_reads"], 1), number(hit["index_bytes"] / 1e3, 1)]
        row += [number(tree["hit"]["wall_ms"]), number(tree["miss"]["wall_ms"])]
        rows.append(row + [number(tree["range_rows_read"][f"{share:g}"], 3) for share in RANGES])
    measure.print_table(header, rows)


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws sizes, zones read in vain and times by the probability."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(17, 5))
    for column, sweeps in result["sweeps"].items():
        for zone_rows, found in sweeps.items():
            label = f"{column}, {int(zone_rows):,} rows"
            trees = [found[f"{fpp:g}"] for fpp in FPPS]
            left.plot(FPPS, [tree["factor_formula"] for tree in trees], marker="o", label=label)
            middle.plot(FPPS, [tree["searches_hit"]["false_zones"] for tree in trees], marker="o", label=label)
            line = right.plot(FPPS, [tree["hit"]["wall_ms"] for tree in trees], marker="o", label=label)
            right.axhline(found["key"]["hit"]["wall_ms"], color=line[0].get_color(), linestyle=":")
    thesis = [found["thesis_formula"] for name, found in result["sweeps"]["pk"]["16"].items() if name != "key"]
    left.plot(FPPS, thesis, color="black", linestyle="--", label="thesis, formulas, pk")
    for column, reads in zones_model.FALSE_READS.items():
        middle.plot(
            list(reads), list(reads.values()), color="black", linestyle="--", marker="x", label=f"thesis, {column}"
        )
    left.set_title("times smaller than a B+-tree of the formulas")
    middle.set_title("zones read in vain by a search that finds its key")
    right.set_title("median of a lookup that finds its key, ms (dotted: kind key)")
    middle.set_yscale("symlog", linthresh=0.01)
    for axes in (left, middle, right):
        axes.set_xscale("log")
        axes.invert_xaxis()
        axes.set_xlabel("probability of a false positive")
        axes.legend(fontsize=7)
    left.set_yscale("log")
    figure.suptitle(f"bloom_tree, {result['rows']:,} tuples")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=100_000, help="tuples of R (4,194,304 are the relation of the thesis)"
    )
    parser.add_argument("--probes", type=int, default=100, help="keys that are looked up, of each sort")
    parser.add_argument("--ranges", type=int, default=5, help="scans of ranges of each size")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for JSON and plot")
    arguments = parser.parse_args()
    result = run(arguments.rows, arguments.probes, arguments.ranges)
    report(result)
    measure.publish(arguments.results, f"zones-{arguments.rows}", result, plot)


if __name__ == "__main__":
    main()

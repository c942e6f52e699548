"""Every bitmap encoding over the Set Query Benchmark: `make bench NAME=encodings [ROWS=10000000]`.

Indexes table BENCH once for each encoding and once by `auto`, each in a store of its own, and runs the 75 counts on
each. Bytes and reads of the index are those that Lakemark itself reports for a count (`Table.explain(...,
count=True)`), with directories in memory and no rows remembered; directories are counted apart. Wall and CPU seconds
are of `Table.count` with nothing remembered, rounds interleaved, warm, medians. All must give equal answers.

KSEQ is indexed to a precision of two digits, as in the paper, but for `auto`, which has no options; `auto, told` has
the precision of KSEQ, too, so that it differs from the others in what it chose. `range` and `interval` keep a bitmap
for nearly every value: they are for columns of at most a hundred, others get `equality`.

Sums run as SQL on every store, and on DataFusion and DuckDB, in one interleaved run.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import measure
import sqb_peers
import sqb_table

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
AUTO = "auto"
AUTO_TOLD = "auto, told"
ENCODINGS = ("equality", "binary", "range", "interval", "interval-equality", "range-equality")
FEW_VALUES = 100
BYTES_PER_ROW_GOALS = {"equality": 17.5, "interval-equality": 24.0, "binary": 14.6}
# What `auto` may lose against the best encoding.
AUTO_LOSS = 1.1
# Figure 10 of the paper: MB read for the 75 queries over 100,000,000 rows, on two of its machines.
PAPER_ROWS = 100_000_000
PAPER_MB = {
    "data3": {"binary": 6_226, "equality": 947, "interval-equality": 1_939, "range-equality": 1_651},
    "turing": {"binary": 1_819, "equality": 1_255, "interval-equality": 2_335, "range-equality": 2_006},
}
# Sums of columns, Q3 of the benchmark among them, each a single number.
SUMS = {
    "all rows": 'SELECT sum("K100K") AS n FROM bench',
    "a half": 'SELECT sum("K1K") AS n FROM bench WHERE "K2" = 2',
    "a fifth": 'SELECT sum("K100K") AS n FROM bench WHERE "K5" = 3',
    "a tenth, by mean": 'SELECT avg("K40K") AS n FROM bench WHERE "K10" = 7',
    "a twentieth of a half": 'SELECT sum("K10K") AS n FROM bench WHERE "K2" = 2 AND "K25" < 3',
    "by five groups": 'SELECT max(s) AS n FROM (SELECT sum("K100K") AS s FROM bench GROUP BY "K5")',
    "Q3A": 'SELECT sum("K1K") AS n FROM bench WHERE "KSEQ" BETWEEN 400000 AND 500000 AND "K10" = 3',
}
# Ranges of a tenth of the rows, for which the paper's second level pays.
WIDE_RANGES = ("K10K BETWEEN 2000 AND 3000", "K1K BETWEEN 850 AND 950")


@dataclass(frozen=True)
class Read:
    """What was read of an index."""

    bytes: int
    reads: int


def quoted(condition: str) -> str:
    """The column names are upper case; conditions without a statement take them as they are."""
    return condition.replace('"', "")


def options_of(encoding: str, column: str) -> dict[str, Any]:
    """How a column is indexed."""
    if column == "KSEQ" and encoding != AUTO:
        return {"precision": 2}
    if encoding in {AUTO, AUTO_TOLD}:
        return {}
    many = sqb_table.CARDINALITIES[column] > FEW_VALUES
    return {"encoding": "equality" if many and encoding in {"range", "interval"} else encoding}


def build(folder: Path, store: Path, encoding: str) -> tuple[lakemark.Table, dict[str, Any]]:
    """Indexes the table anew in a store of its own; returns it, and what that took."""
    shutil.rmtree(store, ignore_errors=True)
    table = lakemark.Table(folder, store=store)

    def make() -> None:
        for column in sqb_table.COLUMNS:
            options = options_of(encoding, column)
            table.create_index(column, using="bitmap" if options else "auto", build=False, **options)
        table.build(progress=False)

    _, cost = measure.measure(make)
    indexes = {index.column: {"encoding": index.encoding, "bytes": index.bytes} for index in table.indexes}
    return table, {"build_wall_seconds": cost.wall_seconds, "build_cpu_seconds": cost.cpu_seconds, "indexes": indexes}


def read_of(table: lakemark.Table, condition: str, *, count: bool = True) -> Read:
    """What is read for a condition when nothing is remembered but directories that were opened before."""
    report = table.explain(condition, count=count, selection_cache=False)
    if report.files_scanned:
        raise AssertionError(f"not every file is covered: {condition}")
    return Read(report.index_bytes_read, report.index_reads)


def directories(table: lakemark.Table) -> dict[str, Read]:
    """What opening the segments of each column reads: the first search does it, the second no more."""
    found = {}
    for column in sqb_table.COLUMNS:
        first, second = (read_of(table, f"{column} = 2") for _ in range(2))
        found[column] = Read(first.bytes - second.bytes, first.reads - second.reads)
    return found


def columns_of(condition: str) -> list[str]:
    """The columns that a condition names."""
    return sorted(set(re.findall(r"\bK\w+", condition)))


def groups(names: list[str]) -> dict[str, list[str]]:
    """The queries of each group, and all."""
    kinds = ("Q1", "Q2A", "Q2B", "Q3A", "Q3B", "Q4A", "Q4B")
    return {**{kind: [name for name in names if name.startswith(kind)] for kind in kinds}, "all": names}


def ask(table: lakemark.Table, conditions: dict[str, str]) -> dict[str, Any]:
    """Bytes and reads of every query, and of the paper's wide ranges by themselves."""
    opened = directories(table)
    reads = {name: read_of(table, condition) for name, condition in conditions.items()}
    again = {
        name: sum(opened[column].bytes for column in columns_of(condition)) for name, condition in conditions.items()
    }
    return {
        "directories": {column: asdict(read) for column, read in opened.items()},
        "queries": {name: asdict(read) for name, read in reads.items()},
        "read": {
            group: {
                "bytes": sum(reads[name].bytes for name in chosen),
                "reads": sum(reads[name].reads for name in chosen),
                # As if each query had to open its segments, as in the paper.
                "bytes_with_directories": sum(reads[name].bytes + again[name] for name in chosen),
            }
            for group, chosen in groups(list(conditions)).items()
        },
        "wide_ranges": {text: asdict(read_of(table, text, count=False)) for text in WIDE_RANGES},
    }


def session_of(table: lakemark.Table) -> Callable[[str], Any]:
    """Runs SQL on the table, with no rows remembered."""
    session = lakemark.connect()
    session.register("bench", table)
    session.sql("SET lakemark.selection_cache = false")
    return lambda sql: session.sql(sql).to_arrow()["n"][0].as_py()


def run(rows: int, rounds: int) -> dict[str, Any]:
    """Writes, indexes, runs the queries and measures."""
    folder = CACHE / f"sqb-{rows}"
    sqb_table.write_table(folder, rows)
    conditions = {name: quoted(sql.split(" WHERE ", 1)[1]) for name, sql in sqb_table.queries().items()}
    tables, found = {}, {}
    for encoding in (*ENCODINGS, AUTO_TOLD, AUTO):
        store = CACHE / f"sqb-{rows}-encodings" / encoding.replace(", ", "-")
        tables[encoding], built = build(folder, store, encoding)
        size = sum(index["bytes"] for index in built["indexes"].values())
        found[encoding] = {**built, "bytes": size, "bytes_per_row": size / rows, **ask(tables[encoding], conditions)}
        print(
            f"{encoding}: {size / rows:.3f} bytes a row, built in {built['build_cpu_seconds']:.1f} s of CPU", flush=True
        )

    def counting(table: lakemark.Table) -> Any:  # noqa: ANN401 - a function
        return lambda condition: table.count(condition, selection_cache=False)

    engines = {encoding: counting(table) for encoding, table in tables.items()}
    _, costs = measure.interleave(engines, list(conditions.values()), rounds)
    names = list(conditions)
    for group, chosen in groups(names).items():
        for encoding, cost in measure.medians(costs, [names.index(name) for name in chosen]).items():
            found[encoding].setdefault("medians", {})[group] = cost
    summing = {encoding: session_of(table) for encoding, table in tables.items()}
    asked = {**summing, "datafusion": sqb_peers.datafusion_parquet(folder)}
    asked |= {"duckdb": sqb_peers.duckdb_parquet(folder), "duckdb native": sqb_peers.duckdb_native(folder)}
    _, costs = measure.interleave(asked, list(SUMS.values()), rounds)
    sums = {name: measure.medians(costs, [place]) for place, name in enumerate(SUMS)}
    return {
        "benchmark": "Set Query Benchmark, the 75 counts by encoding",
        "rows": rows,
        "rounds": rounds,
        "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
        "machine": measure.machine(),
        "bytes_per_row_goals": BYTES_PER_ROW_GOALS,
        "paper_mb_read": PAPER_MB,
        "encodings": found,
        "sums": sums,
        "auto_against_best": {
            auto: {kind: loss(found, auto, *place) for kind, place in MEASURES.items()} for auto in (AUTO_TOLD, AUTO)
        },
    }


# What `auto` is compared in: where it stands in the results.
MEASURES = {
    "bytes read": ("read", "bytes"),
    "CPU seconds": ("medians", "cpu_seconds"),
    "wall seconds": ("medians", "wall_seconds"),
}


def loss(found: dict[str, Any], auto: str, kind: str, measured: str) -> dict[str, Any]:
    """How `auto` compares with the encoding that is best over all queries."""
    of = {encoding: found[encoding][kind]["all"][measured] for encoding in found}
    best = min(ENCODINGS, key=lambda encoding: of[encoding])
    return {"best": best, "ratio": of[auto] / of[best]}


def report(result: dict[str, Any]) -> None:
    """Prints the result as tables."""
    rows, found = result["rows"], result["encodings"]
    print(f"\n{'bytes a row':20}" + "".join(f"{encoding:>19}" for encoding in found))
    for column in sqb_table.COLUMNS:
        sizes = (found[encoding]["indexes"][column]["bytes"] / rows for encoding in found)
        print(f"{column:20}" + "".join(f"{size:19.3f}" for size in sizes))
    print(f"{'all':20}" + "".join(f"{one['bytes_per_row']:19.3f}" for one in found.values()))
    goals = (f"{BYTES_PER_ROW_GOALS[name]:.1f}" if name in BYTES_PER_ROW_GOALS else "" for name in found)
    print(f"{'goal':20}" + "".join(f"{goal:>19}" for goal in goals))
    print(f"{'auto takes':20}" + ", ".join(f"{name} {one['encoding']}" for name, one in found[AUTO]["indexes"].items()))
    print(f"{'build CPU s':20}" + "".join(f"{one['build_cpu_seconds']:19.2f}" for one in found.values()))
    for title, kind, measured, scale in (
        ("MB read", "read", "bytes", 1e-6),
        ("reads", "read", "reads", 1.0),
        ("CPU ms", "medians", "cpu_seconds", 1e3),
        ("wall ms", "medians", "wall_seconds", 1e3),
    ):
        print()
        for group in next(iter(found.values()))["read"]:
            cells = (one[kind][group][measured] * scale for one in found.values())
            print(f"{title + ', ' + group:20}" + "".join(f"{cell:19.2f}" for cell in cells))
    all_ = (one["read"]["all"]["bytes_with_directories"] / 1e6 for one in found.values())
    print(f"{'MB, with directories':20}" + "".join(f"{cell:19.2f}" for cell in all_))
    for machine, read in PAPER_MB.items():
        scaled = (f"{read[name] * rows / PAPER_ROWS:.1f}" if name in read else "" for name in found)
        print(f"{'paper, ' + machine + ', MB':20}" + "".join(f"{cell:>19}" for cell in scaled))
    print("\nranges by themselves, MB read by a search:")
    for text in WIDE_RANGES:
        print(
            f"{text:30}" + "".join(f"{n} {one['wide_ranges'][text]['bytes'] / 1e6:.2f}  " for n, one in found.items())
        )
    print("\nsums, wall ms / CPU ms")
    engines = list(next(iter(result["sums"].values())))
    print(f"{'':24}" + "".join(f"{engine:>19}" for engine in engines))
    for name, costs in result["sums"].items():
        cells = (f"{cost['wall_seconds'] * 1e3:.1f} / {cost['cpu_seconds'] * 1e3:.1f}" for cost in costs.values())
        print(f"{name:24}" + "".join(f"{cell:>19}" for cell in cells))
    for auto, kinds in result["auto_against_best"].items():
        for kind, against in kinds.items():
            verdict = "met" if against["ratio"] <= AUTO_LOSS else "missed"
            print(
                f"{auto}, {kind}: {against['ratio']:.2f} times the best, {against['best']}; goal {AUTO_LOSS}: {verdict}"
            )


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws size, bytes read beside the paper's, and CPU time by encoding."""
    found, rows = result["encodings"], result["rows"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(18, 5))
    names = list(found)
    bottom = [0.0] * len(names)
    for column in sqb_table.COLUMNS:
        heights = [found[name]["indexes"][column]["bytes"] / rows for name in names]
        left.bar(names, heights, bottom=bottom, label=column)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    for name, goal in BYTES_PER_ROW_GOALS.items():
        place = names.index(name)
        left.hlines(goal, place - 0.45, place + 0.45, colors="black", linestyles="dashed")
    left.set_ylabel("bytes per row (dashed: goal)")
    left.set_title("size of the 13 indexes")
    left.legend(fontsize="x-small", ncols=2)
    ours = [found[name]["read"]["all"]["bytes_with_directories"] / 1e6 for name in names]
    paper = [PAPER_MB["turing"].get(name, 0) * rows / PAPER_ROWS for name in names]
    places = range(len(names))
    middle.bar([place - 0.2 for place in places], ours, 0.4, label="Lakemark, directories included")
    middle.bar([place + 0.2 for place in places], paper, 0.4, label="paper, figure 10 (turing), by rows")
    middle.set_xticks(list(places), names)
    middle.set_ylabel("MB read for the 75 counts")
    middle.set_title(f"bytes read, N = {rows:,}")
    middle.legend(fontsize="small")
    bottom = [0.0] * len(names)
    for group in list(found[AUTO]["medians"])[:-1]:
        heights = [found[name]["medians"][group]["cpu_seconds"] * 1e3 for name in names]
        right.bar(names, heights, bottom=bottom, label=group)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    right.set_ylabel("CPU ms, warm, nothing remembered")
    right.set_title("the 75 counts")
    right.legend(fontsize="small")
    for axes in (left, middle, right):
        axes.tick_params(axis="x", rotation=45)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    measure.run_rounds("sqb-encodings", __doc__, run, report, plot)

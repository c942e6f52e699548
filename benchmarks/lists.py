"""Conditions on elements of lists: `make bench NAME=lists [ROWS=10000000]`.

Writes photos with up to eight tags each, of 5,000 tags that are as frequent as words are (Zipf), and builds an index on
the elements. Conditions name single tags, any of three and two together. Each engine returns how many rows there are,
and the sum of a column of them. Beside Lakemark stand DataFusion's own package, DuckDB on the Parquet files and on its
own table, and Lance with its index for labels. Same process, in turn, equal answers; no condition comes twice. Reported
are medians of each engine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import matplotlib as mpl
import measure
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from kept import kept

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[[str], list[int]]

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
FILES = 8
TAGS = 5_000
LONGEST = 8
PAYLOAD = 5
GROUP_ROWS = 131_072
SEED = 20_261_123
# What each engine computes of the rows: `Table.count` and the sum of a column of theirs.
COUNT, TOTAL = "SELECT count(*) FROM t WHERE ", "SELECT sum(p0) FROM t WHERE "

BUILD = """
import json, sys, measure, lakemark
folder, store = sys.argv[1:]
table = lakemark.Table(folder, store=store)
_, cost = measure.measure(lambda: table.create_index("tags", progress=False))
print(json.dumps({
    "wall_seconds": cost.wall_seconds, "cpu_seconds": cost.cpu_seconds, "peak_bytes": measure.process_memory("VmHWM"),
    "bytes": table.indexes[0].bytes,
}))
"""


def write_file(path: Path, first: int, rows: int) -> None:
    """One data file: the rows from `first` on."""
    random = np.random.default_rng([SEED, first])
    lengths = random.integers(0, LONGEST + 1, rows)
    # The tag of rank r is drawn about 1 / r times as often as the first.
    ranks = np.exp(random.random(lengths.sum()) * np.log(TAGS)).astype(np.int32)
    names = pa.array([f"tag-{rank}" for rank in range(TAGS + 1)])
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    tags = pa.ListArray.from_arrays(offsets, names.take(pa.array(ranks)))
    columns = {"id": np.arange(first, first + rows), "tags": tags}
    columns |= {f"p{n}": random.integers(0, 2**40, rows) for n in range(PAYLOAD)}
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=GROUP_ROWS)


def write_table(folder: Path, rows: int) -> None:
    """Writes the table; a complete one is kept."""
    with kept(folder) as is_missing:
        for ordinal in range(FILES) if is_missing else ():
            first, last = rows * ordinal // FILES, rows * (ordinal + 1) // FILES
            write_file(folder / f"part-{ordinal}.parquet", first, last - first)


def conditions(probes: int) -> dict[str, list[str]]:
    """Conditions of each shape, none of them twice, on tags from frequent to rare."""
    random = np.random.default_rng(11)

    def drawn(count: int) -> list[list[str]]:
        ranks = [np.exp(random.random(count) * np.log(TAGS)).astype(int) for _ in range(probes * 4)]
        wanted = dict.fromkeys(tuple(sorted({int(rank) for rank in row})) for row in ranks)
        whole = [row for row in wanted if len(row) == count][:probes]
        return [[f"'tag-{rank}'" for rank in row] for row in whole]

    return {
        "one tag": [f"array_has(tags, {tags[0]})" for tags in drawn(1)],
        "any of three": [f"array_has_any(tags, [{', '.join(tags)}])" for tags in drawn(3)],
        "both of two": [f"array_has_all(tags, [{', '.join(tags)}])" for tags in drawn(2)],
    }


def files(folder: Path) -> list[str]:
    """The data files."""
    return sorted(str(path) for path in folder.glob("*.parquet"))


def lance_labels(folder: Path) -> tuple[Ask, Ask]:
    """Lance with its index for labels: counts, and sums."""
    import lance
    import pyarrow.compute as pc

    copy = folder.with_name(f"{folder.name}-lance")
    with kept(copy) as is_missing:
        if is_missing:
            # Elements that Parquet calls otherwise would be cast in each query, and the index not be used.
            schema = pa.schema([("tags", pa.list_(pa.string())), ("p0", pa.int64())])
            rows = pads.dataset(files(folder)).to_table(schema.names).cast(schema)
            made = lance.write_dataset(rows, str(copy / "t.lance"))
            made.create_scalar_index("tags", "LABEL_LIST")
    dataset = lance.dataset(str(copy / "t.lance"))
    if "ScalarIndexQuery" not in dataset.scanner(filter="array_has(tags, 'tag-1')").explain_plan():
        raise AssertionError("Lance does not use its index")

    def total(condition: str) -> list[int]:
        found = dataset.to_table(columns=["p0"], filter=condition)
        return [pc.sum(found["p0"]).as_py() or 0]

    return (lambda condition: [dataset.count_rows(condition)]), total


def engines(folder: Path, store: Path) -> dict[str, tuple[Ask, Ask]]:
    """Each engine's counts and sums."""
    table, session = lakemark.Table(folder, store=store), lakemark.connect()
    session.table(folder, name="t", store=store)
    context, parquet = datafusion.SessionContext(), duckdb.connect()
    context.register_parquet("t", str(folder))
    parquet.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet({files(folder)})")
    copy = folder.with_name(f"{folder.name}-duckdb")
    with kept(copy) as is_missing:
        native = duckdb.connect(str(copy / "t.duckdb"))
        if is_missing:
            native.execute(f"CREATE TABLE t AS SELECT tags, p0 FROM read_parquet({files(folder)})")
            native.execute("CHECKPOINT")

    def by_datafusion(sql: str) -> list[int]:
        return [context.sql(sql).collect()[0].column(0)[0].as_py() or 0]

    def by_duckdb(connection: duckdb.DuckDBPyConnection) -> tuple[Ask, Ask]:
        def ask(sql: str) -> list[int]:
            row = connection.execute(sql).fetchone()
            return [int(row[0] or 0) if row else 0]

        return (lambda condition: ask(COUNT + condition)), (lambda condition: ask(TOTAL + condition))

    found: dict[str, tuple[Ask, Ask]] = {
        "lakemark": (
            lambda condition: [table.count(condition)],
            lambda condition: [session.sql(TOTAL + condition).to_arrow().column(0)[0].as_py() or 0],
        ),
        "datafusion": (
            lambda condition: by_datafusion(COUNT + condition),
            lambda condition: by_datafusion(TOTAL + condition),
        ),
        "duckdb parquet": by_duckdb(parquet),
        "duckdb native": by_duckdb(native),
    }
    if importlib.util.find_spec("lance") is None:
        print("Lance is not installed and is left out: pip install --requirement benchmarks/requirements.txt")
        return found
    return {**found, "lance LABEL_LIST": lance_labels(folder)}


def run(rows: int, probes: int) -> dict[str, Any]:
    """Writes, builds, measures."""
    folder = CACHE / f"lists-{rows}"
    write_table(folder, rows)
    store = folder.with_name(f"{folder.name}-indexes")
    shutil.rmtree(store, ignore_errors=True)
    built = measure.run_apart(BUILD, str(folder), str(store))
    lists = (pq.read_table(path, columns=["tags"])["tags"] for path in files(folder))
    elements = sum(len(column.combine_chunks().flatten()) for column in lists)
    asked = {}
    for name, wheres in conditions(probes).items():
        for place, what in enumerate(("count", "sum")):
            asks = {engine: pair[place] for engine, pair in engines(folder, store).items()}
            asked[f"{what}, {name}"] = measure.look_up(asks, wheres, lambda _, answer: len(answer) == 1)
    return {
        "benchmark": "elements of lists",
        "rows": rows,
        "elements": elements,
        "probes": probes,
        "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
        "machine": measure.machine(),
        "versions": {
            "lakemark": lakemark.__version__,
            "datafusion": datafusion.__version__,
            "duckdb": duckdb.__version__,
        },
        "index": {**built, "bytes_per_element": built["bytes"] / elements},
        "asked": asked,
    }


def report(result: dict[str, Any]) -> None:
    """Prints the result as a table."""
    index = result["index"]
    print(
        f"{result['rows']:,} rows, {result['elements']:,} elements; index {index['bytes'] / 1e6:.1f} MB, "
        f"{index['bytes_per_element']:.2f} B/element, {index['wall_seconds']:.1f} s, {index['peak_bytes'] / 1e6:.0f} MB"
    )
    print(f"\n{'':22}{'':20}{'median ms':>10}{'p99 ms':>9}{'CPU ms':>9}{'KB read':>10}{'x':>8}")
    for name, costs in result["asked"].items():
        ours = costs["lakemark"]["wall_ms"]
        for engine, cost in costs.items():
            print(
                f"{name:22}{engine:20}{cost['wall_ms']:10.2f}{cost['wall_ms_p99']:9.2f}{cost['cpu_ms']:9.2f}"
                f"{cost['read_bytes'] / 1e3:10.1f}{cost['wall_ms'] / ours:8.1f}"
            )


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the median of each engine for each condition and result."""
    asked = result["asked"]
    names = list(next(iter(asked.values())))
    figure, axis = plt.subplots(figsize=(11, 4.8))
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        places = np.arange(len(asked)) + (place - len(names) / 2 + 0.5) * width
        axis.bar(places, [costs[name]["wall_ms"] for costs in asked.values()], width, label=name)
    axis.set_xticks(np.arange(len(asked)), list(asked))
    axis.set_yscale("log")
    axis.set_ylabel("median, ms (log)")
    axis.set_title(f"{result['rows']:,} rows with {result['elements']:,} elements of lists")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(names))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the table")
    parser.add_argument("--probes", type=int, default=40, help="conditions of each shape")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for JSON and plot")
    arguments = parser.parse_args()
    result = run(arguments.rows, arguments.probes)
    report(result)
    measure.publish(arguments.results, f"lists-{arguments.rows}", result, plot)


if __name__ == "__main__":
    main()

"""Lookups of three columns of sixteen by the permuted key: from an index that includes them, and beside peers."""

from __future__ import annotations

import importlib.util
import shutil
import statistics
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import measure
from goals import Goal, print_goals
from kept import kept

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Ask = Callable[[int], list[tuple[int, ...]]]

KEY = "permuted"
COLUMNS = ["p0", "p1", "p2"]
LISTED = ", ".join(COLUMNS)
OURS, BY_SQL, LANCE = "lakemark lookup, included", "lakemark SQL, included", "lance BTREE"
# Of a lookup: milliseconds, requests and bytes, and how often it fits into that of Lance's B-tree.
MILLISECONDS, REQUESTS, BYTES, TIMES = 0.5, 1.0, 4096.0, 2.0
# Lookups whose reads are counted, none of which is timed.
COUNTED = 20

BUILD = """
import json, sys, measure, lakemark
folder, store, key, include = sys.argv[1:]
table = lakemark.Table(folder, store=store)
_, cost = measure.measure(
    lambda: table.create_index(key, using="key", include=include.split(","), progress=False)
)
print(json.dumps({
    "wall_seconds": cost.wall_seconds, "cpu_seconds": cost.cpu_seconds, "peak_bytes": measure.process_memory("VmHWM"),
    "bytes": table.indexes[0].bytes,
}))
"""


def by_lookup(folder: Path, store: Path) -> Ask:
    """Our lookup."""
    table = lakemark.Table(folder, store=store)
    return lambda key: rows_of(table.lookup([key], COLUMNS, on=KEY).to_arrow().to_pylist())


def by_sql(folder: Path, store: Path) -> Ask:
    """The same in SQL."""
    session = lakemark.connect()
    session.table(folder, name="t", store=store)
    return lambda key: rows_of(session.sql(f"SELECT {LISTED} FROM t WHERE {KEY} = {key}").to_arrow().to_pylist())


def rows_of(rows: Sequence[dict[str, int]]) -> list[tuple[int, ...]]:
    """The values of each row."""
    return sorted(tuple(row[column] for column in COLUMNS) for row in rows)


def by_datafusion(folder: Path) -> Ask:
    """DataFusion's own package on the Parquet files."""
    config = datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    context = datafusion.SessionContext(config)
    context.register_parquet("t", str(folder))

    def ask(key: int) -> list[tuple[int, ...]]:
        batches = context.sql(f"SELECT {LISTED} FROM t WHERE {KEY} = {key}").collect()
        return rows_of([row for batch in batches for row in batch.to_pylist()])

    return ask


def by_duckdb(folder: Path) -> Ask:
    """DuckDB's own table with its index on the key."""
    copy = folder.with_name(f"{folder.name}-covering-duckdb")
    with kept(copy) as is_missing:
        connection = duckdb.connect(str(copy / "t.duckdb"))
        if is_missing:
            connection.execute(f"CREATE TABLE t AS SELECT {KEY}, {LISTED} FROM read_parquet('{folder}/*.parquet')")
            connection.execute(f"CREATE UNIQUE INDEX by_key ON t ({KEY})")
            connection.execute("CHECKPOINT")
    return lambda key: sorted(connection.execute(f"SELECT {LISTED} FROM t WHERE {KEY} = {key}").fetchall())


def by_lance(folder: Path) -> tuple[Ask, int]:
    """Lance's B-tree, and the rows that it finds, which Lance takes; and the bytes of the B-tree."""
    import lance
    import pyarrow.dataset as pads

    copy = folder.with_name(f"{folder.name}-covering-lance")
    with kept(copy) as is_missing:
        path = copy / "t.lance"
        if is_missing:
            rows = pads.dataset(sorted(map(str, folder.glob("*.parquet")))).scanner([KEY, *COLUMNS])
            lance.write_dataset(rows, str(path)).create_scalar_index(KEY, "BTREE")
    dataset = lance.dataset(str(path))
    index_bytes = sum(file.stat().st_size for file in (path / "_indices").rglob("*") if file.is_file())
    return lambda key: rows_of(dataset.to_table(columns=COLUMNS, filter=f"{KEY} = {key}").to_pylist()), index_bytes


def run(folder: Path, plain: Path, rows: int, keys: Sequence[int]) -> dict[str, Any]:
    """Builds the index and looks keys up; `plain` is the store of an index of the same key that includes nothing."""
    store = folder.with_name(f"{folder.name}-indexes-covering")
    shutil.rmtree(store, ignore_errors=True)
    built = measure.run_apart(BUILD, str(folder), str(store), KEY, ",".join(COLUMNS))
    asks: dict[str, Ask] = {
        OURS: by_lookup(folder, store),
        BY_SQL: by_sql(folder, store),
        "lakemark lookup": by_lookup(folder, plain),
        "datafusion": by_datafusion(folder),
        "duckdb native, index": by_duckdb(folder),
    }
    sizes = {OURS: built["bytes"] / rows}
    if importlib.util.find_spec("lance") is not None:
        asks[LANCE], index_bytes = by_lance(folder)
        sizes[LANCE] = index_bytes / rows
    return {
        "columns": COLUMNS,
        "build": built,
        "bytes_per_row": sizes,
        "asked": measure.look_up(asks, keys[COUNTED:], lambda _, found: len(found) == 1),
        "read": reads(folder, store, keys[:COUNTED]),
    }


def reads(folder: Path, store: Path, keys: Sequence[int]) -> dict[str, float]:
    """Requests and bytes of a lookup, of table and index: medians over keys whose leaves are not remembered."""
    table = lakemark.Table(folder, store=store)
    found = [measure.counted(table, lambda key=key: table.lookup([key], COLUMNS, on=KEY))[2] for key in keys]
    return {
        "requests": statistics.median(read.requests for read in found),
        "bytes": statistics.median(read.bytes for read in found),
    }


def goals(result: dict[str, Any]) -> list[Goal]:
    """The goals."""
    asked, read = result["asked"], result["read"]
    times = asked[LANCE]["wall_ms"] / asked[OURS]["wall_ms"] if LANCE in asked else None
    return [
        Goal("a lookup of three columns of sixteen, ms", asked[OURS]["wall_ms"], "<=", MILLISECONDS),
        Goal("its requests", read["requests"], "<=", REQUESTS),
        Goal("its bytes", read["bytes"], "<=", BYTES),
        Goal("Lance's B-tree and take / the lookup", times, ">=", TIMES),
    ]


def report(result: dict[str, Any]) -> None:
    """Prints the result as a table, and the goals."""
    asked, sizes = result["asked"], result["bytes_per_row"]
    ours = asked[OURS]
    print(f"\n{'three columns of sixteen':28}{'median ms':>10}{'p99 ms':>9}{'KB read':>10}{'x':>8}{'index B/row':>13}")
    for name, cost in asked.items():
        size = f"{sizes[name]:13.2f}" if name in sizes else ""
        print(
            f"{name:28}{cost['wall_ms']:10.3f}{cost['wall_ms_p99']:9.3f}{cost['read_bytes'] / 1e3:10.1f}"
            f"{cost['wall_ms'] / ours['wall_ms']:8.1f}{size}"
        )
    print_goals(goals(result))

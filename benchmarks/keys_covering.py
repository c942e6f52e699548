"""Lookups of three columns of sixteen by the permuted key: from an index that includes them, and beside peers."""

from __future__ import annotations

import importlib.util
import shutil
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import measure
from kept import kept

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Ask = Callable[[int], list[tuple[int, ...]]]

KEY = "permuted"
COLUMNS = ["p0", "p1", "p2"]
LISTED = ", ".join(COLUMNS)
# Of a lookup: milliseconds, bytes read, and how often it fits into that of Lance's B-tree.
GOALS = {"ms": 0.5, "bytes": 4096, "x": 2.0}

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
        "lakemark lookup, included": by_lookup(folder, store),
        "lakemark SQL, included": by_sql(folder, store),
        "lakemark lookup": by_lookup(folder, plain),
        "datafusion": by_datafusion(folder),
        "duckdb native, index": by_duckdb(folder),
    }
    sizes = {"lakemark lookup, included": built["bytes"] / rows}
    if importlib.util.find_spec("lance") is not None:
        asks["lance BTREE"], index_bytes = by_lance(folder)
        sizes["lance BTREE"] = index_bytes / rows
    return {
        "columns": COLUMNS,
        "build": built,
        "bytes_per_row": sizes,
        "asked": measure.look_up(asks, keys, lambda _, found: len(found) == 1),
    }


def report(result: dict[str, Any]) -> None:
    """Prints the result as a table, and the goals."""
    asked, sizes = result["asked"], result["bytes_per_row"]
    ours = asked["lakemark lookup, included"]
    print(f"\n{'three columns of sixteen':28}{'median ms':>10}{'p99 ms':>9}{'KB read':>10}{'x':>8}{'index B/row':>13}")
    for name, cost in asked.items():
        size = f"{sizes[name]:13.2f}" if name in sizes else ""
        print(
            f"{name:28}{cost['wall_ms']:10.3f}{cost['wall_ms_p99']:9.3f}{cost['read_bytes'] / 1e3:10.1f}"
            f"{cost['wall_ms'] / ours['wall_ms']:8.1f}{size}"
        )
    print(f"goals: {GOALS['ms']} ms, {GOALS['bytes']:,} bytes read, {GOALS['x']} x of Lance's B-tree")

"""The table of the thesis on MaSM (Athanassoulis 2014, section 3.5), its changes, and scans of its ranges.

Records of 100 bytes in order of their keys, of which the even ones are loaded. Changes are inserts of odd keys, deletes
and modifications of even ones, a third each, uniform over the keys.
"""

from __future__ import annotations

import os
import shutil
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import limits
import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
VALUES = 12
RECORD_BYTES = 100
SUMS = ", ".join(f"sum(v{number})" for number in range(VALUES))


def records(keys: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """Records of 100 bytes: a key of four and twelve values of eight."""
    random = np.random.default_rng(seed)
    columns = {f"v{number}": random.integers(0, 1 << 40, len(keys)) for number in range(VALUES)}
    return pa.table({"k": keys.astype(np.int32), **columns})


def write_table(folder: Path, rows: int) -> None:
    """Four files of even keys in order."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, keys in enumerate(np.array_split(np.arange(rows) * 2, 4)):
        table = records(keys, number)
        pq.write_table(table, folder / f"part-{number}.parquet", compression="zstd", row_group_size=1 << 20)


def changes(rows: int, count: int, seed: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Inserts of odd keys, deletes and modifications of even ones, a third each, uniform over the keys."""
    random = np.random.default_rng(seed)
    third = max(count // 3, 1)
    even = random.choice(rows, 2 * third, replace=False) * 2
    odd = random.choice(rows, third, replace=False) * 2 + 1
    return records(odd, seed), records(even[:third], seed + 1).select(["k"]), records(even[third:], seed + 2)


def apply(table: lakemark.Table, given: tuple[pa.Table, pa.Table, pa.Table], commits: int = 1) -> None:
    """Makes the changes in so many calls of each kind."""
    inserted, deleted, modified = given
    for part in range(commits):
        cut = [part * len(inserted) // commits, (part + 1) * len(inserted) // commits]
        if cut[0] < cut[1]:
            span = slice(*cut)
            table.upsert(inserted.take(np.arange(len(inserted))[span]))
            table.delete(deleted.take(np.arange(len(deleted))[span]))
            table.upsert(modified.take(np.arange(len(modified))[span]))


def query(low: int, high: int) -> str:
    """All columns of the records with keys from `low` to below `high`."""
    return f"SELECT count(*), {SUMS} FROM t WHERE k >= {low} AND k < {high}"


def session_of(folder: Path, store: Path) -> Callable[[str], list[Any]]:
    """Runs queries over the table in a session of its own."""
    session = lakemark.connect()
    session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{folder}' OPTIONS (store '{store}')")

    def ask(sql: str) -> list[Any]:
        return pa.table(session.sql(sql)).to_pylist()

    return ask


def timed(asks: dict[str, Callable[[str], Any]], sql: str, rounds: int, cold: Sequence[Path] = ()) -> dict[str, float]:
    """Median wall seconds of each, interleaved; cold if the files of some folders leave the page cache before each."""
    seconds: dict[str, list[float]] = {name: [] for name in asks}
    for turn in range(rounds + 1):
        for name, ask in asks.items():
            limits.forget(path for folder in cold for path in folder.rglob("*") if path.is_file())
            _, cost = measure.measure(lambda ask=ask: ask(sql))
            if turn > 0:
                seconds[name].append(cost.wall_seconds)
    return {name: statistics.median(values) for name, values in seconds.items()}


def open_table(folder: Path, store: Path, **options: int) -> lakemark.Table:
    """The table with a store of its own."""
    table = lakemark.Table(folder, store=store)
    table.declare_key("k", **options)
    return table


def fresh(scratch: Path, name: str, folder: Path) -> Path:
    """A store with the index of the key and nothing else, as the changed ones have."""
    store = scratch / name
    open_table(folder, store)
    return store

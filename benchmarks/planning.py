"""What it takes to plan a query: `make bench NAME=planning`.

```text
24 tables       two files each, all joined by a key
10,000 files    one table and a sum: of all rows, of one value, and beside a small table
```

Plans come from EXPLAIN, which reads no data: for DataFusion's own Parquet tables, and for Lakemark without
and with indexes, in one process and in turn. Both list the folder each time, or trust a listing that they remember.
The time of listing alone, a look at every file, stands beside them.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept
from suites import AGAIN, ALL, CACHE, ENGINE, PLAIN, session

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[[str], Any]

TABLES, FILES_OF_EACH, ROWS_OF_EACH = 24, 2, 100
ROWS_OF_FILE = 10
LISTING = "listing"
WAYS = (ENGINE, AGAIN, PLAIN, ALL, LISTING)


def write(folder: Path, files: int, rows: int) -> None:
    """Writes a table of keys and values."""
    folder.mkdir()
    for file in range(files):
        numbers = range(file * rows, (file + 1) * rows)
        columns = {"k": [n % 1_000 for n in numbers], "id": list(numbers), "v": [n * 7 % 101 for n in numbers]}
        pq.write_table(pa.table(columns), folder / f"part-{file:05}.parquet")


def generate(folder: Path, tables: dict[str, tuple[int, int]]) -> None:
    """Writes the tables, of so many files with so many rows, and indexes them, unless they are there."""
    with kept(folder) as missing:
        if not missing:
            return
        for name, (files, rows) in tables.items():
            write(folder / name, files, rows)
            table = lakemark.Table(folder / name, store=store_of(folder, ALL) / name)
            for column in ("k", "id"):
                table.create_index(column, build=False)
            table.build(progress=False)


def store_of(folder: Path, way: str) -> Path:
    """Where a way keeps its indexes."""
    return folder.with_name(f"{folder.name}-{way}")


def asks_of(folder: Path) -> dict[str, Ask]:
    """A session for each way."""
    return {
        ENGINE: session(folder, "PARQUET"),
        AGAIN: session(folder, "PARQUET"),
        PLAIN: session(folder, "LAKEMARK", store_of(folder, PLAIN)),
        ALL: session(folder, "LAKEMARK", store_of(folder, ALL)),
    }


def look(folder: Path) -> int:
    """Lists a folder, with the size of every file."""
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries)


def timed(asks: dict[str, Ask], sql: str, rounds: int) -> dict[str, float]:
    """The median milliseconds of each way; the first round, which fills what sessions remember, does not count."""
    taken: dict[str, list[float]] = {way: [] for way in asks}
    ways = list(asks)
    for turn in range(rounds + 1):
        for way in measure.in_turn(ways, turn):
            _, cost = measure.measure(lambda way=way: asks[way](sql))
            taken[way].append(cost.wall_seconds * 1e3)
    return {way: statistics.median(times[1:]) for way, times in taken.items()}


def main() -> None:
    """Generates, plans, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    many, large = CACHE / "planning-tables", CACHE / f"planning-{given.files}"
    names = [f"t{number}" for number in range(TABLES)]
    generate(many, dict.fromkeys(names, (FILES_OF_EACH, ROWS_OF_EACH)))
    generate(large, {"t": (given.files, ROWS_OF_FILE), "d": (1, ROWS_OF_EACH)})
    joined = " ".join(f"JOIN {name} ON {name}.id = t0.id" for name in names[1:])
    asked = {
        "24 tables": (many, f"SELECT sum(t0.v) FROM t0 {joined}"),
        "all rows": (large, "SELECT sum(v) FROM t"),
        "one value": (large, "SELECT sum(v) FROM t WHERE id = 17"),
        "a join": (large, "SELECT sum(t.v) FROM t JOIN d ON t.id = d.id"),
    }
    taken = {}
    for name, (folder, sql) in asked.items():
        asks = asks_of(folder)
        if folder == large:
            asks[LISTING] = lambda _: look(large / "t")
        taken[name] = timed(asks, f"EXPLAIN {sql}", given.rounds)
    shown = [(name, *(f"{times[way]:.2f}" if way in times else "" for way in WAYS)) for name, times in taken.items()]
    measure.print_table(("plan, ms", *WAYS), shown)
    result = {"files": given.files, "rounds": given.rounds, "machine": measure.machine(), "milliseconds": taken}
    print(f"written: {measure.write_json(given.results, f'planning-{given.files}', result)}")


if __name__ == "__main__":
    main()

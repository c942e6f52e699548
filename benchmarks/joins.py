"""Joins of a few keys with a large table: `make bench NAME=joins`.

```text
facts    ROWS rows, ten of each key, anywhere
few      10,000 of the keys          many    1,000,000 of them (a tenth of all at 100,000,000 rows)
```

The queries return the number of the rows that match, a page of 1,000 of them, and a sum over all. Two more count the
facts whose key is in the small table (`IN`) and those whose key is not (`NOT IN`). They run over DataFusion's own
Parquet tables, over Lakemark without an index and with one of the kind `key` on the key, and over DuckDB. All run in
one process and in turn. The answers are equal.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from answers import rows_of
from clicks import hashed
from kept import kept
from suites import (
    AGAIN,
    ALL,
    CACHE,
    DUCKDB,
    ENGINE,
    PLAIN,
    ask_rounds,
    judge,
    line,
    other_answers,
    plot,
    session,
    summary,
    totals,
)

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS_OF_KEY = 10
FILES = 10
ROW_GROUP_ROWS = 1 << 20
PAGE = 1_000
ASKED = {"few": 10_000, "many": 1_000_000}
# `NOT IN` of more rows runs by name alone: the engine gathers the large side, for a quarter of an hour.
MOST_ROWS_OF_ANTI = 10_000_000

QUERIES = {
    f"{name} {what}": sql.format(of=name)
    for name in ASKED
    for what, sql in {
        "count": "SELECT count(*) FROM facts JOIN {of} ON facts.key = {of}.key",
        "page": f"SELECT count(*) FROM (SELECT facts.* FROM facts JOIN {{of}} ON facts.key = {{of}}.key LIMIT {PAGE})",
        "sum": "SELECT sum(amount), count(*) FROM facts JOIN {of} ON facts.key = {of}.key",
        "semi": "SELECT count(*) FROM facts WHERE key IN (SELECT key FROM {of})",
        "anti": "SELECT count(*) FROM facts WHERE key NOT IN (SELECT key FROM {of})",
    }.items()
}


def generate(folder: Path, rows: int) -> None:
    """Writes the tables unless they are there."""
    keys = max(rows // ROWS_OF_KEY, 1)
    with kept(folder) as missing:
        if not missing:
            return
        for name in ("facts", *ASKED):
            (folder / name).mkdir()
        for part in range(FILES):
            drawn = np.random.default_rng(part)
            numbers = np.arange(part * rows // FILES, (part + 1) * rows // FILES)
            # Every key once in each stretch of as many rows as there are keys, in an order that is no order.
            at = (numbers * 7_368_787 + numbers // keys) % keys
            columns = {
                "key": pa.array(hashed(at)),
                "amount": pa.array(drawn.integers(0, 10_000, len(numbers)).astype(np.int32)),
                "note": pa.array(drawn.integers(0, 1_000_000, len(numbers)).astype(np.int32)),
            }
            target = folder / "facts" / f"part-{part:03}.parquet"
            pq.write_table(pa.table(columns), target, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        for name, count in ASKED.items():
            chosen = np.random.default_rng(len(name)).choice(keys, min(count, keys // 2), replace=False)
            table = pa.table({"key": pa.array(hashed(chosen)), "number": pa.array(np.arange(len(chosen)))})
            pq.write_table(table, folder / name / "part-000.parquet")


def create_indexes(folder: Path, store: Path) -> None:
    """Makes the index on the keys of the facts."""
    table = lakemark.Table(folder / "facts", store=store / "facts")
    if not table.indexes:
        table.create_index("key", "key")


def main() -> None:
    """Generates, indexes, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--queries", default="", help="only these, such as 'few count,many page'")
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    folder = CACHE / f"joins-{given.rows}"
    generate(folder, given.rows)
    store = {name: folder.with_name(f"{folder.name}-{name}") for name in (PLAIN, ALL)}
    create_indexes(folder, store[ALL])
    asks: dict[str, Callable[[str], Any]] = {
        ENGINE: session(folder, "PARQUET"),
        AGAIN: session(folder, "PARQUET"),
        PLAIN: session(folder, "LAKEMARK", store[PLAIN]),
        ALL: session(folder, "LAKEMARK", store[ALL]),
        DUCKDB: judge(folder),
    }
    chosen = [name for name in given.queries.split(",") if name]
    results = []
    for name, sql in QUERIES.items():
        is_too_long = name.endswith(" anti") and given.rows > MOST_ROWS_OF_ANTI
        if name not in chosen if chosen else is_too_long:
            continue
        answers = {way: rows_of(ask(sql)) for way, ask in asks.items()}
        found = {"query": name, "failed": {}, "rows": answers[ENGINE].total(), "other_answers": other_answers(answers)}
        results.append(found | summary(ask_rounds(asks, sql, given.rounds)))
        print(line(results[-1]), flush=True)
    result = {
        "suite": "joins",
        "scale": given.rows,
        "profile": os.environ.get("LAKEMARK_PROFILE", "dev"),
        "machine": measure.machine(),
        "totals": totals(results),
        "queries": results,
    }
    measure.publish(given.results, f"joins-{given.rows}", result, plot)


if __name__ == "__main__":
    main()

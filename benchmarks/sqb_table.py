"""The table and the queries of the Set Query Benchmark.

KSEQ counts the rows from 1. The other twelve columns are named after the number of their values. Their values are drawn
from the benchmark's own generator: a 32-bit seed that begins with 1 and is multiplied by 16,807 modulo 2^31 - 1 before
each use. One step serves one value, row by row.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CARDINALITIES = {
    "K2": 2, "K4": 4, "K5": 5, "K10": 10, "K25": 25, "K100": 100, "K1K": 1_000, "K10K": 10_000, "K40K": 40_000,
    "K100K": 100_000, "K250K": 250_000, "K500K": 500_000,
}  # fmt: skip
COLUMNS = ("KSEQ", *CARDINALITIES)
FILES = 4
ROW_GROUP_ROWS = 1 << 20
MULTIPLIER = 16_807
MODULUS = 2**31 - 1

# Figure 1 of the paper: the ten conditions of Q4.
CONDITIONS = (
    "K2 = 1", "K100 > 80", "K10K BETWEEN 2000 AND 3000", "K5 = 3", "(K25 = 11 OR K25 = 19)", "K4 = 3", "K100 < 41",
    "K1K BETWEEN 850 AND 950", "K10 = 7", "K25 BETWEEN 3 AND 4",
)  # fmt: skip
Q4_INSTANCES = 8
# Q3 selects a tenth of the smallest table's rows, in one piece and in five.
Q3_COLUMNS = ("K4", "K5", "K10", "K25", "K100", "K1K", "K10K", "K40K", "K100K", "K250K", "K500K")
Q3A = "KSEQ BETWEEN 400000 AND 500000"
Q3B = " OR ".join(
    f"KSEQ BETWEEN {first} AND {last}"
    for first, last in ((400000, 410000), (420000, 430000), (440000, 450000), (460000, 470000), (480000, 500000))
)


def multiplier_powers(count: int) -> np.ndarray:
    """MULTIPLIER^1 .. MULTIPLIER^count modulo MODULUS, by doubling."""
    powers = np.array([MULTIPLIER], dtype=np.uint64)
    while len(powers) < count:
        powers = np.concatenate([powers, powers * powers[-1] % np.uint64(MODULUS)])
    return powers[:count]


def row_groups(first_row: int, rows: int) -> Iterator[pa.Table]:
    """The rows first_row.. (counted from 0) of the table, one row group at a time."""
    powers = multiplier_powers(min(rows, ROW_GROUP_ROWS) * len(CARDINALITIES))
    for start in range(first_row, first_row + rows, ROW_GROUP_ROWS):
        count = min(ROW_GROUP_ROWS, first_row + rows - start)
        seed = pow(MULTIPLIER, start * len(CARDINALITIES), MODULUS)
        drawn = (powers[: count * len(CARDINALITIES)] * np.uint64(seed) % np.uint64(MODULUS)).reshape(
            count, len(CARDINALITIES)
        )
        arrays = {"KSEQ": pa.array(np.arange(start + 1, start + count + 1, dtype=np.int32))}
        for ordinal, (name, cardinality) in enumerate(CARDINALITIES.items()):
            arrays[name] = pa.array((drawn[:, ordinal] % np.uint64(cardinality)).astype(np.int32) + np.int32(1))
        yield pa.table(arrays)


def write_table(folder: Path, rows: int) -> int:
    """Writes the table as zstd Parquet; returns its size in bytes. A complete table of that size is kept."""
    done = folder / f"_complete_{rows}"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for ordinal in range(FILES):
            first, last = rows * ordinal // FILES, rows * (ordinal + 1) // FILES
            write_file(folder / f"bench-{ordinal}.parquet", first, last - first)
        done.touch()
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def write_file(path: Path, first_row: int, rows: int) -> None:
    """Writes one data file."""
    writer = None
    for table in row_groups(first_row, rows):
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="zstd", write_page_index=True)
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
    if writer is not None:
        writer.close()


def queries() -> dict[str, str]:
    """The 75 counts, by name: Q1 (13), Q2A and Q2B (12 each), Q3A and Q3B (11 each), Q4A and Q4B (8 each)."""
    texts = {f"Q1 {name}": f"{name} = 2" for name in COLUMNS}
    for name in COLUMNS:
        if name == "K2":
            continue
        texts[f"Q2A {name}"] = f"K2 = 2 AND {name} = 3"
        texts[f"Q2B {name}"] = f"K2 = 2 AND NOT {name} = 3"
    for name in Q3_COLUMNS:
        texts[f"Q3A {name}"] = f"{Q3A} AND {name} = 3"
        texts[f"Q3B {name}"] = f"({Q3B}) AND {name} = 3"
    for variant, terms in (("Q4A", 3), ("Q4B", 5)):
        for first in range(Q4_INSTANCES):
            chosen = [CONDITIONS[(first + term) % len(CONDITIONS)] for term in range(terms)]
            texts[f"{variant} {first + 1}"] = " AND ".join(chosen)
    # The column names are upper case, which SQL would fold away without quotes.
    quoted = {name: re.sub(r"\bK\w+", r'"\g<0>"', text) for name, text in texts.items()}
    return {name: f"SELECT count(*) AS n FROM bench WHERE {text}" for name, text in quoted.items()}

"""The relation that single keys are looked up in: a dense permuted key, a random one, one of twelve rows, one in order.

| column | values |
|---|---|
| pk | 0, 1, 2, … in the order of the rows |
| ordered | every even number below 2 N in the order of the rows |
| permuted | every even number below 2 N once, in random order |
| random | random 64-bit numbers |
| twelve | random, each in twelve rows on average, anywhere |
| att1 | in the order of the rows, each in eleven rows on average |
| p0 … p9 | random numbers: what a lookup returns, and what makes rows wide |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

KEYS = ("pk", "ordered", "permuted", "random", "twelve", "att1")
FILES = 16
PAYLOAD = 10
SEED = 20_260_901
# Of the rounds that permute the numbers below N without an array of all of them.
MULTIPLIER = 2_654_435_761


def permuted(rows: np.ndarray, total: int) -> np.ndarray:
    """Every number below `total` once: a Feistel network on the bits, walked until the number is below `total`."""
    half = (max(2, int(total - 1).bit_length()) + 1) // 2
    mask = np.uint64((1 << half) - 1)
    result = rows.astype(np.uint64)
    todo = np.ones(len(result), dtype=bool)
    while todo.any():
        left, right = result[todo] >> np.uint64(half), result[todo] & mask
        for turn in range(4):
            mixed = (right * np.uint64(MULTIPLIER) + np.uint64(turn * 0x9E37)) & np.uint64(0xFFFF_FFFF_FFFF_FFFF)
            left, right = right, left ^ ((mixed >> np.uint64(13)) & mask)
        result[todo] = left << np.uint64(half) | right
        todo[todo] = result[todo] >= total
    return result.astype(np.int64)


def write_file(path: Path, first: int, rows: int, total: int, group_rows: int) -> None:
    """One data file: the rows from `first` on."""
    random = np.random.default_rng([SEED, first])
    numbers = np.arange(first, first + rows, dtype=np.int64)
    columns = {
        "pk": numbers,
        "ordered": 2 * numbers,
        "permuted": 2 * permuted(numbers, total),
        "random": random.integers(-(2**63), 2**63, rows, dtype=np.int64),
        "twelve": random.integers(0, max(1, total // 12), rows) * 7919,
        "att1": numbers // 11,
        **{f"p{n}": random.integers(0, 2**40, rows) for n in range(PAYLOAD)},
    }
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=group_rows, use_dictionary=False)


def write_table(folder: Path, rows: int, row_groups: int) -> int:
    """Writes the table; returns its size in bytes. A complete one is kept."""
    done = folder / f"_complete_{rows}_{row_groups}_{len(KEYS)}"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        group_rows = max(1, rows // row_groups)
        for ordinal in range(FILES):
            first, last = rows * ordinal // FILES, rows * (ordinal + 1) // FILES
            write_file(folder / f"part-{ordinal:02}.parquet", first, last - first, rows, group_rows)
        done.touch()
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))

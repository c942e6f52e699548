"""Relation R of the BF-tree (Athanassoulis 2014, section 5.6): tuples of 256 bytes, keys in order.

| column | bytes | values |
|---|---|---|
| pk | 8 | every even number below 2 N, in order: odd numbers are keys that are not there, between those that are |
| att1 | 8 | even numbers in order, each 11 times on average (at random, a few never) |
| shuffled | 8 | pk, shuffled inside of blocks of 4,096 rows: partitions with ordered fences and no order inside |
| shipdate | 4 | every other day, in order, each 2,400 times on average, as in lineitem of TPC-H |
| p0 | 8 | random: what a search returns |
| filler | 220 | the rest of the tuple; repeats, so that files stay small, and is never read |
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept

if TYPE_CHECKING:
    from pathlib import Path

# A multiple of both sizes of zones, so that row groups cut no zone.
GROUP_ROWS = 160_000
# Of columns of 8 bytes; with their offsets, so that what is read for a row is a page and not a row group.
PAGE_ROWS = 20_000
BLOCK_ROWS = 4096
FILLER_BYTES = 220
SEED = 20_260_911
FIRST_DAY = dt.date(1992, 1, 2)


def ordered_values(random: np.random.Generator, rows: int, times: int) -> np.ndarray:
    """Even numbers in order, each so many times on average."""
    return 2 * np.sort(random.integers(0, max(1, rows // times), rows))


def shuffled_in_blocks(random: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """The values in another order inside of each block."""
    blocks = (values[first : first + BLOCK_ROWS] for first in range(0, len(values), BLOCK_ROWS))
    return np.concatenate([random.permutation(block) for block in blocks])


def columns(rows: int) -> dict[str, np.ndarray]:
    """The keys of R, and p0."""
    random = np.random.default_rng([SEED, rows])
    pk = 2 * np.arange(rows, dtype=np.int64)
    first_day = (FIRST_DAY - dt.date(1970, 1, 1)).days
    return {
        "pk": pk,
        "att1": ordered_values(random, rows, 11),
        "shuffled": shuffled_in_blocks(random, pk),
        "shipdate": (first_day + ordered_values(random, rows, 2400)).astype(np.int32),
        "p0": random.integers(0, 2**40, rows),
    }


def write_table(folder: Path, rows: int) -> dict[str, np.ndarray]:
    """Writes R as one file, unless it is there; returns its keys and p0."""
    values = columns(rows)
    with kept(folder) as is_missing:
        if is_missing:
            write_file(folder / "r.parquet", values, rows)
    return values


def write_file(path: Path, values: dict[str, np.ndarray], rows: int) -> None:
    """Writes R."""
    arrays = {
        name: pa.array(column, pa.date32() if name == "shipdate" else pa.int64()) for name, column in values.items()
    }
    schema = pa.schema([*((name, array.type) for name, array in arrays.items()), ("filler", pa.binary(FILLER_BYTES))])
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=False,
        data_page_size=PAGE_ROWS * 8,
        write_page_index=True,
    ) as writer:
        for first in range(0, rows, GROUP_ROWS):
            cut = {name: array.slice(first, GROUP_ROWS) for name, array in arrays.items()}
            filler = filler_of(min(GROUP_ROWS, rows - first))
            writer.write_table(pa.table({**cut, "filler": filler}), row_group_size=GROUP_ROWS)


def filler_of(rows: int) -> pa.Array:
    """So many values of the filler."""
    sample = np.random.default_rng(SEED).bytes(1024 * FILLER_BYTES)
    data = (sample * (rows // 1024 + 1))[: rows * FILLER_BYTES]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(FILLER_BYTES), rows, [None, pa.py_buffer(data)])

"""Data files whose bytes or footers are not what they should be."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path) -> bytes:
    table = pa.table({"d": [row / 7 for row in range(500)], "s": [f"text {row // 3}" for row in range(500)]})
    encodings = {"d": "BYTE_STREAM_SPLIT", "s": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, path, use_dictionary=False, compression="none", column_encoding=encodings)
    return path.read_bytes()


def test_damaged_pages_are_errors_that_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    good = write(path)
    chance = random.Random(28)  # noqa: S311
    errors = []
    for _ in range(40):
        damaged = bytearray(good)
        for at in (chance.randrange(4, 40), chance.randrange(4, len(good) - 2000)):
            damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            lakemark.Table(tmp_path).scan().to_arrow()
        except lakemark.LakemarkError as error:
            errors.append(error)
    assert errors
    assert all(isinstance(error, lakemark.CorruptError) and "part.parquet" in str(error) for error in errors), errors


def test_a_file_that_is_written_over_with_its_time_set_back_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"k": [1] * 100}), path)
    table = lakemark.Table(tmp_path)
    table.create_index("k")
    table.build(progress=False)
    assert (table.count("k = 1"), table.count("k = 5")) == (100, 0)
    before = path.stat()
    pq.write_table(pa.table({"k": [5] * 100}), tmp_path / "other")
    with path.open("r+b") as file:
        file.write((tmp_path / "other").read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    for opened in (table, lakemark.Table(tmp_path)):
        with pytest.warns(lakemark.LakemarkWarning, match="changed since it was indexed"):
            assert (opened.count("k = 1"), opened.count("k = 5")) == (0, 100)

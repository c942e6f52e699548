"""Scans of every sort, many times: each gives its memory back, and the process does not grow.

`LAKEMARK_LEAK_SCANS` says how many.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakemark
from spark_tables import mark, plan_of, wait_for, write_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

SCANS = int(os.environ.get("LAKEMARK_LEAK_SCANS", "140"))
MIB = 1 << 20
# What Spark's own compiled queries and threads may add after the first scans, and what one scan may leave on average.
GROWTH_BYTES = 96 * MIB + SCANS * 4096


class Process:
    """The JVM of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to the JVM
        self._status = Path(f"/proc/{self._jvm.java.lang.ProcessHandle.current().pid()}/status")
        self._allocator = self._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()

    def held(self) -> int:
        """Bytes that Arrow vectors hold."""
        return int(self._allocator.getAllocatedMemory())

    def outside_of_the_heap(self) -> int:
        self._jvm.java.lang.System.gc()
        (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", self._status.read_text("ascii"))
        return int(kilobytes) * 1024 - int(self._jvm.java.lang.Runtime.getRuntime().totalMemory())


def damage(path: Path) -> None:
    """Leaves the footer readable, and no page before it."""
    content = path.read_bytes()
    path.write_bytes(b"PAR1" + b"\xff" * (len(content) // 2 - 4) + content[len(content) // 2 :])


@pytest.fixture
def scans(spark: SparkSession, tmp_path: Path) -> list[Callable[[int], object]]:
    """Ways to scan, each with a number that makes it another query."""
    plain, pending, damaged = (write_folder(tmp_path / name, files=2) for name in ("plain", "pending", "damaged"))
    for folder in (plain, pending, damaged):
        mark(folder, "k", "id")
    table = lakemark.Table(pending, key="id")
    table.upsert([{"id": n, "city": "pending", "k": 5} for n in range(990, 1010)])
    table.flush()
    table.delete(list(range(20)))
    damage(damaged / "part-1.parquet")

    def frame(folder: Path, **options: str) -> DataFrame:
        return spark.read.format("lakemark").options(**options).load(str(folder))

    def fails(number: int) -> None:
        with pytest.raises(Exception, match=r"LakemarkException\$Corrupt"):
            frame(damaged, use_index="false").where(f"amount > {number % 7}").collect()

    return [
        lambda number: frame(plain).where(f"k = {number % 20}").collect(),
        lambda number: frame(plain, use_index="false").where(f"id > {number % 50}").selectExpr("sum(amount)").collect(),
        lambda number: frame(plain).where(f"k < {number % 20}").groupBy("k").count().collect(),
        # Tasks are told to stop in the middle of their batches.
        lambda number: frame(plain).limit(1 + number % 5).collect(),
        lambda number: frame(pending).where(f"id > {number % 900}").collect(),
        # A plan that nobody runs.
        lambda number: plan_of(frame(pending).where(f"k = {number % 20}")),
        fails,
    ]


def test_scans_give_their_memory_back(spark: SparkSession, scans: list[Callable[[int], object]]) -> None:
    process = Process(spark)
    warm = max(4 * len(scans), min(SCANS // 4, 140))
    before = 0
    for number in range(warm + SCANS):
        if number == warm:
            before = process.outside_of_the_heap()
        scans[number % len(scans)](number)
        # Where one task of a job fails, others may be about to end.
        wait_for(lambda: process.held() == 0)
    grown = process.outside_of_the_heap() - before
    print(f"{SCANS} scans: {grown / MIB:.1f} MiB more outside of the heap")  # noqa: T201 - what a long run has seen
    assert grown < GROWTH_BYTES

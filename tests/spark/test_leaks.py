"""Scans of every sort, many times: each gives its memory back, and the process grows no more than by Spark's own.

Spark's pools of threads, compiled queries and failed tasks let a process grow for thousands of queries: scans of ours
and of Spark's own take turns, and the growth of each is added up. `LAKEMARK_LEAK_SCANS` says how many of each.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakemark
from spark_tables import create_indexes, plan_of, wait_for, write_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

SCANS = int(os.environ.get("LAKEMARK_LEAK_SCANS", "140"))
MIB = 1 << 20
TURN = 70
# By how much the growth of two series of scans differs by chance, and what one scan may leave beyond Spark's own.
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


Scans = dict[str, list["Callable[[int], object]"]]


@pytest.fixture
def scans(spark: SparkSession, tmp_path: Path) -> Scans:
    """Ways to scan, ours and Spark's own, each with a number that makes it another query."""
    plain, buffered, damaged = (write_folder(tmp_path / name, files=2) for name in ("plain", "pending", "damaged"))
    for folder in (plain, buffered, damaged):
        create_indexes(folder, "k", "id")
    table = lakemark.Table(buffered, key="id")
    table.upsert([{"id": n, "city": "pending", "k": 5} for n in range(990, 1010)])
    table.flush()
    table.delete(list(range(20)))
    damage(damaged / "part-1.parquet")

    def of(kind: str) -> list[Callable[[int], object]]:
        def frame(folder: Path, **options: str) -> DataFrame:
            return spark.read.format(kind).options(**(options if kind == "lakemark" else {})).load(str(folder))

        def fails(number: int) -> None:
            with pytest.raises(Exception, match=r"LakemarkException\$Corrupt" if kind == "lakemark" else "part-1"):
                frame(damaged, use_index="false").where(f"amount > {number % 7}").collect()

        return [
            lambda number: frame(plain).where(f"k = {number % 20}").collect(),
            lambda number: (
                frame(plain, use_index="false").where(f"id > {number % 50}").selectExpr("sum(amount)").collect()
            ),
            lambda number: frame(plain).where(f"k < {number % 20}").groupBy("k").count().collect(),
            # Tasks are told to stop in the middle of their batches.
            lambda number: frame(plain).limit(1 + number % 5).collect(),
            lambda number: frame(buffered).where(f"id > {number % 900}").collect(),
            # A plan that nobody runs.
            lambda number: plan_of(frame(buffered).where(f"k = {number % 20}")),
            fails,
        ]

    return {kind: of(kind) for kind in ("lakemark", "parquet")}


def test_scans_give_their_memory_back(spark: SparkSession, scans: Scans) -> None:
    process = Process(spark)
    grown = dict.fromkeys(scans, 0)
    # The first turn of each warms the session.
    for start in range(0, SCANS + TURN, TURN):
        for kind, ways in scans.items():
            before = process.outside_of_the_heap()
            for number in range(start, start + TURN):
                ways[number % len(ways)](number)
                # Where one task of a job fails, others may be about to end.
                wait_for(lambda: process.held() == 0)
            if start > 0:
                grown[kind] += process.outside_of_the_heap() - before
    shown = ", ".join(f"{kind} {bytes_ / MIB:.1f} MiB" for kind, bytes_ in grown.items())
    print(f"outside of the heap {SCANS} scans of each left: {shown}")  # noqa: T201 - what a long run has seen
    assert grown["lakemark"] < max(grown["parquet"], 0) + GROWTH_BYTES

"""What tasks hold outside of the heap is Spark's to manage, where it manages any."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from spark_tables import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Row, SparkSession

MIB = 1 << 20
# Many more than the pipe to a function in Python takes.
ROWS = 400_000
# Builds that are looked at, at most.
BUILDS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    folder.mkdir()
    numbers = pa.array(range(ROWS), pa.int64())
    pq.write_table(pa.table({"n": numbers}), folder / "part-0.parquet", row_group_size=ROWS // 4)
    return folder


def used(spark: SparkSession) -> int:
    """Bytes of memory outside of the heap that tasks have taken from Spark's manager."""
    if not spark.version.startswith("4.1."):
        # Its environment names classes that PySpark 4.3 does not bring, so that Python cannot look into it.
        pytest.skip(f"the memory manager of Spark {spark.version} cannot be asked from Python")
    env = spark.sparkContext._jsc.sc().env()  # noqa: SLF001 - PySpark has no other way
    return int(env.memoryManager().offHeapExecutionMemoryUsed())


def test_a_reader_takes_what_it_holds_and_gives_it_back(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    path = str(gate)

    def wait(rows: Iterator[Row]) -> None:
        next(rows)
        while not Path(path).exists():
            time.sleep(0.01)

    frame = spark.read.format("lakemark").load(str(folder)).coalesce(1)
    chunks = [pq.read_metadata(folder / "part-0.parquet").row_group(at).column(0) for at in range(4)]
    two = sum(sorted(chunk.total_compressed_size for chunk in chunks)[2:])
    assert used(spark) == 0
    job = threading.Thread(target=lambda: frame.foreachPartition(wait))
    job.start()
    try:
        wait_for(lambda: used(spark) == two)
    finally:
        gate.touch()
        job.join()
    wait_for(lambda: used(spark) == 0)


def test_a_build_takes_what_spark_has_and_gives_it_back(spark: SparkSession, folder: Path) -> None:
    has = int(spark.conf.get("spark.memory.offHeap.size").removesuffix("m")) * MIB
    seen = used(spark)
    assert seen == 0
    # A build is short, and on a busy machine nobody may look while it runs.
    for number in range(BUILDS):
        # Another table: of one that was built already a segment might be taken over.
        table = lakemark.Table(shutil.copytree(folder, folder.with_name(f"table-{number}")))
        table.create_index("n", using="bitmap", build=False)
        call = f"CALL lm.system.build(table => '{table.location}', memory => {1 << 50})"
        build = threading.Thread(target=spark.sql, args=(call,))
        build.start()
        while build.is_alive():
            seen = max(seen, used(spark))
        assert seen <= has
        wait_for(lambda: used(spark) == 0)
        assert table.indexes[0].coverage == 1.0
        if seen == has:
            return
    pytest.fail(f"of {BUILDS} builds none took more than {seen} of {has} bytes")


def test_a_writer_takes_what_waits_to_be_sorted_and_gives_it_back(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    lakemark.Table(folder).declare_key("n")
    gate = str(tmp_path / "gate")
    added = 100_000

    def rows(_: Iterator[int]) -> Iterator[tuple[int]]:
        yield from ((ROWS + number,) for number in range(added))
        while not Path(gate).exists():
            time.sleep(0.01)

    numbers = spark.createDataFrame(spark.sparkContext.parallelize([0], 1).mapPartitions(rows), "n long")
    writer = numbers.write.format("lakemark").mode("append").option("operation", "insert")
    assert used(spark) == 0
    job = threading.Thread(target=lambda: writer.save(str(folder)))
    job.start()
    try:
        # All but what did not fill a batch, 8 bytes each; there is room for validity and for what is not full.
        wait_for(lambda: 8 * added * 0.8 < used(spark) < 8 * added * 2)
    finally:
        Path(gate).touch()
        job.join()
    wait_for(lambda: used(spark) == 0)
    assert spark.read.format("lakemark").load(str(folder)).count() == ROWS + added

"""Builds as jobs of Spark's on one core and on two, each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

import keys_table
import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept

if TYPE_CHECKING:
    from pathlib import Path

FILES = 8
COLUMNS = ("few", "many", "key", "day")
CORES = ("1", "2")
# Seconds of each build with the given number of cores, after one that warms.
APART = """
import json, shutil, sys, time
from pyspark.sql import SparkSession
import lakemark, lakemark.spark
folder, cores, columns, rounds = sys.argv[1], sys.argv[2], sys.argv[3].split(","), int(sys.argv[4])
builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "4g")
spark = lakemark.spark.configure(builder.config("spark.log.level", "ERROR")).getOrCreate()
seconds = []
for number in range(rounds + 1):
    shutil.rmtree(f"{folder}/_lakemark", ignore_errors=True)
    table = lakemark.Table(folder)
    for column in columns:
        table.create_index(column, build=False)
    began = time.perf_counter()
    report = lakemark.spark.build(spark, folder, progress=False)
    seconds.append(time.perf_counter() - began)
    assert not report.declined and not report.skipped
spark.stop()
print(json.dumps({"seconds": seconds[1:], "segments": report.segments, "rows": report.rows}))
"""


def write_table(folder: Path, rows: int) -> None:
    """Columns of few, of many and of different values, and one in order. A complete table is kept."""
    with kept(folder) as is_missing:
        for number, part in enumerate(np.array_split(np.arange(rows), FILES) if is_missing else ()):
            key = keys_table.permuted(part, rows)
            columns = {"few": key % 100, "many": key * 7919 % 99_991, "key": key, "day": part // 1000}
            pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=1 << 20)


def build_seconds(folder: Path, rounds: int) -> dict[str, float]:
    """Median seconds of a build of an index on each column, by the number of cores; both in turn."""
    taken: dict[str, list[float]] = {cores: [] for cores in CORES}
    for _ in range(2):
        for cores, seconds in taken.items():
            command = [sys.executable, "-c", APART, str(folder), cores, ",".join(COLUMNS), str(rounds)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=measure.environment())
            seconds.extend(json.loads(done.stdout.splitlines()[-1])["seconds"])
    return {cores: statistics.median(seconds) for cores, seconds in taken.items()}

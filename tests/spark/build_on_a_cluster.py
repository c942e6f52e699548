"""Builds on two executor processes, for `test_build_job.py`: prints what it saw as JSON.

usage: python build_on_a_cluster.py FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import lakemark
import lakemark.spark

FILES = 8
ROWS = 100_000
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def session(root: Path) -> SparkSession:
    settings = {
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": str(root / "spark-warehouse"),
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("lakemark-cluster")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return lakemark.spark.configure(builder, warehouse=root / "warehouse").getOrCreate()


def write(folder: Path, *, files: int = FILES, rows: int = ROWS) -> Path:
    folder.mkdir(parents=True)
    for part in range(files):
        table = pa.table({"k": pa.array([(part * rows + n) * 7919 % 1_000_003 for n in range(rows)], pa.int64())})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=20_000)
    lakemark.Table(folder).create_index("k", using="bitmap", build=False, files_per_segment=1)
    return folder


def build(spark: SparkSession, table: object) -> dict[str, object]:
    (row,) = spark.sql(f"CALL lm.system.build(table => '{table}')").collect()
    return dict(row.asDict())


def state(folder: Path) -> dict[str, object]:
    table = lakemark.Table(folder)
    damaged = [each.problem for index in table.verify().indexes for each in index.damaged]
    (index,) = table.indexes
    return {"covered": index.files_covered, "segments": index.segments, "damaged": damaged}


def executors(application: str) -> list[int]:
    """Processes of the application's executors, by their command lines."""

    def is_executor(process: Path) -> bool:
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            return False
        return b"CoarseGrainedExecutorBackend" in command and application.encode() in command

    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if is_executor(process)]


def kill_one(spark: SparkSession, killed: list[int]) -> None:
    """Kills an executor as soon as tasks of the build run."""
    tracker = spark.sparkContext.statusTracker()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage and stage.numCompletedTasks > 0 for stage in stages):
            (pid, *_) = executors(spark.sparkContext.applicationId)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.02)


def main() -> None:
    root = Path(sys.argv[1])
    os.chdir(root)
    spark = session(root)
    seen: dict[str, object] = {}
    folder = write(root / "warehouse" / "dies")
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(spark, killed))
    killer.start()
    seen["built"] = build(spark, "dies")
    killer.join()
    seen["killed"] = len(killed)
    seen["state"] = state(folder)

    # The same path, and in every process another folder.
    folder = write(root / "warehouse" / "apart", files=2, rows=1000)
    store = "/proc/self/cwd/marks"
    for inside in ("manifest", "marks"):
        (root / "marks" / inside).mkdir(parents=True)
    spark.sql(f"CREATE TABLE lm.elsewhere USING lakemark OPTIONS (store = '{store}') LOCATION '{folder}'")
    try:
        spark.sql("CREATE INDEX by_k ON lm.elsewhere USING bitmap (k)")
        seen["told"] = ""
    except Py4JJavaError as error:
        seen["told"] = str(error.java_exception.toString())
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        seen["told"] = str(error)
    spark.stop()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()

"""What two executor processes do while they are killed and stopped, for `test_cluster.py`: prints what it saw as JSON.

usage: python faults_on_a_cluster.py FOLDER
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import lakemark
import lakemark.spark
from kills import slow, tasks
from spark_tables import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Seen = dict[str, object]

FILES = 8
ROWS = 100_000
# Rows of a task that takes its time for each of them.
SLOW_ROWS = 250
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# How long an executor is stopped at most: one that Spark has allowed to commit must go on at last.
STOPPED_SECONDS = 10
# Spark runs a task a second time on another host only, so that workers need addresses of their own.
HOSTS = ("127.0.0.2", "127.0.0.3")
# The same path, and in every process another folder.
HERE = "/proc/self/cwd"


@contextmanager
def cluster(root: Path) -> Iterator[str]:
    """A standalone cluster of two workers with a core each."""
    # Nobody else is given the port as long as this is bound to it; the master may listen there all the same.
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = kept.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    commands += [
        [
            *[f"{deploy}.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"],
            *["--work-dir", str(root / "work"), master],
        ]
        for host in HOSTS
    ]
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {**os.environ, "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS, "SPARK_DAEMON_MEMORY": "256m"}
    with kept, (root / "cluster.log").open("wb") as log:
        started = [subprocess.Popen([program, *each], stdout=log, stderr=log, env=environment) for each in commands]
        try:
            yield master
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait(PATIENCE)


def session(root: Path, master: str) -> SparkSession:
    settings = {
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.warehouse.dir": str(root / "spark-warehouse"),
        "spark.log.level": "OFF",
        # A task that takes longer than the others is run a second time.
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.multiplier": "1.2",
    }
    builder = SparkSession.builder.master(master).appName("lakemark-cluster")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return lakemark.spark.configure(builder, warehouse=root / "warehouse").getOrCreate()


def write(folder: Path, *, files: int = FILES, rows: int = ROWS) -> Path:
    folder.mkdir(parents=True)
    for part in range(files):
        table = pa.table({"k": pa.array([(part * rows + n) * 7919 % 1_000_003 for n in range(rows)], pa.int64())})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=20_000)
    return folder


def executors(application: str) -> list[int]:
    """Processes of the application's executors, by their command lines."""

    def is_executor(process: Path) -> bool:
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            return False
        return b"CoarseGrainedExecutorBackend" in command and application.encode() in command

    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if is_executor(process)]


@final
class Fault:
    """Within the block one executor is killed, or stopped for a while, as soon as some tasks of a job have ended."""

    def __init__(self, spark: SparkSession, *, kill: bool) -> None:
        self.struck = 0
        self.twins = 0
        self._spark, self._kill = spark, kill
        self._known = set(spark.sparkContext.statusTracker().getJobIdsForGroup())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Fault:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.twins = sum(task.speculative() for stage in self._stages() for task in tasks(self._spark, stage))

    def _stages(self) -> list[int]:
        tracker = self._spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup()) - self._known]
        return [stage for job in jobs if job for stage in job.stageIds]

    def _run(self) -> None:
        while not self._over.wait(0.02):
            if any(str(task.status()) == "SUCCESS" for stage in self._stages() for task in tasks(self._spark, stage)):
                self._strike(executors(self._spark.sparkContext.applicationId)[0])
                return

    def _strike(self, process: int) -> None:
        os.kill(process, signal.SIGKILL if self._kill else signal.SIGSTOP)
        self.struck = 1
        if not self._kill:
            self._over.wait(STOPPED_SECONDS)
            os.kill(process, signal.SIGCONT)


def build(spark: SparkSession, folder: Path, *, kill: bool) -> Seen:
    write(folder)
    lakemark.Table(folder).create_index("k", using="bitmap", build=False, files_per_segment=1)
    with Fault(spark, kill=kill) as fault:
        (row,) = spark.sql(f"CALL lm.system.build(table => '{folder.name}')").collect()
    table = lakemark.Table(folder)
    damaged = [each.problem for index in table.verify().indexes for each in index.damaged]
    (index,) = table.indexes
    # A twin finds the segment that the other attempt has written.
    built = {"files": row["files"], "segments": row["segments"] + row["taken_over"], "failed": row["failed"]}
    return {
        "struck": fault.struck,
        "twins": fault.twins,
        "built": built,
        "state": {"covered": index.files_covered, "segments": index.segments, "damaged": damaged},
    }


def rows_of(folder: Path) -> list[int]:
    return sorted(pa.table(lakemark.Table(folder).scan())["k"].to_pylist())


def change(spark: SparkSession, folder: Path, *, kill: bool) -> Seen:
    """New rows, and a merge of some of them: each is one call, whatever becomes of its tasks."""
    write(folder, files=2, rows=100)
    table = lakemark.Table(folder, key="k")
    before = rows_of(folder)
    source = (
        spark.range(2_000_000, 2_000_000 + FILES * SLOW_ROWS, 1, FILES).where(slow("id")).withColumnRenamed("id", "k")
    )
    source.createOrReplaceTempView("source")
    with Fault(spark, kill=kill) as inserting:
        spark.sql(f"INSERT INTO lm.{folder.name} SELECT k FROM source")
    inserted = rows_of(folder)
    with Fault(spark, kill=kill) as merging:
        spark.sql(f"""
            MERGE INTO lm.{folder.name} t USING source s ON t.k = s.k
            WHEN MATCHED AND s.k % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET k = -t.k
        """)
    added = range(2_000_000, 2_000_000 + FILES * SLOW_ROWS)
    return {
        "struck": [inserting.struck, merging.struck],
        "twins": [inserting.twins, merging.twins],
        "inserted": inserted == sorted([*before, *added]),
        "merged": rows_of(folder) == sorted([*before, *(-n for n in added if n % 2)]),
        "sequence": table.updates.sequence,
    }


def settled(folder: Path) -> Seen:
    """What is there when attempts that were stopped have gone on and ended, and waste was removed."""
    rows = rows_of(folder)
    old = time.time() - 2 * 86400
    for path in (folder / "_lakemark").rglob("*"):
        os.utime(path, (old, old))
    table = lakemark.Table(folder)
    table.vacuum(older_than=dt.timedelta(days=1))
    staged = [path.name for path in (folder / "_lakemark" / "updates").iterdir() if path.suffix == ".arrows"]
    return {"sequence": table.updates.sequence, "rows": len(rows), "kept": rows_of(folder) == rows, "staged": staged}


def read(spark: SparkSession, folder: Path, *, kill: bool) -> Seen:
    write(folder, files=FILES, rows=SLOW_ROWS)
    lakemark.Table(folder, key="k").delete([0, 7919])
    with Fault(spark, kill=kill) as fault:
        found = sorted(row.k for row in spark.table(f"lm.{folder.name}").where(slow("k")).collect())
    return {"struck": fault.struck, "twins": fault.twins, "right": found == rows_of(folder), "rows": len(found)}


def told(action: Callable[[], object]) -> str:
    try:
        action()
    except Py4JJavaError as error:
        return str(error.java_exception.toString())
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        return str(error)
    return ""


def apart(spark: SparkSession, root: Path) -> Seen:
    """A store that executors do not see."""
    folder = write(root / "warehouse" / "apart", files=2, rows=1000)
    for inside in ("manifest", "indexes"):
        (root / "store" / inside).mkdir(parents=True)
    store = f"{HERE}/store"
    spark.sql(f"CREATE TABLE lm.elsewhere USING lakemark OPTIONS (store = '{store}') LOCATION '{folder}'")
    building = told(lambda: spark.sql("CREATE INDEX by_k ON lm.elsewhere USING bitmap (k)"))
    store = f"{HERE}/updates"
    spark.sql(f"CREATE TABLE lm.changed USING lakemark OPTIONS (store = '{store}') LOCATION '{folder}'")
    table = lakemark.Table(folder, store=root / "updates", key="k")
    writing = told(lambda: spark.sql("INSERT INTO lm.changed VALUES (-1)"))
    count = table.count()
    table.upsert({"k": [-2, -3]})
    table.flush()
    reading = told(lambda: spark.table("lm.changed").where("k < 0").collect())
    return {"building": building, "writing": writing, "count": count, "reading": reading}


def later(spark: SparkSession, folder: Path) -> Seen:
    """A store that is made after executors have read the table without one."""
    write(folder, files=2, rows=100)
    frame = spark.read.format("lakemark").load(str(folder))
    before = len(frame.collect())
    table = lakemark.Table(folder, key="k")
    table.insert({"k": [-1, -2, -3]})
    table.flush()
    return {"before": before, "after": len(spark.read.format("lakemark").load(str(folder)).collect())}


def look(spark: SparkSession, root: Path) -> Seen:
    lake = root / "warehouse"
    seen: Seen = {"apart": apart(spark, root), "later": later(spark, lake / "later")}
    for kill, fault in ((False, "stopped"), (True, "killed")):
        seen[fault] = {
            "build": build(spark, lake / f"build_{fault}", kill=kill),
            "change": change(spark, lake / f"change_{fault}", kill=kill),
            "read": read(spark, lake / f"read_{fault}", kill=kill),
        }
    spark.stop()
    seen["settled"] = {fault: settled(lake / f"change_{fault}") for fault in ("stopped", "killed")}
    return seen


def main() -> None:
    root = Path(sys.argv[1])
    os.chdir(root)
    with cluster(root) as master:
        sys.stdout.write(json.dumps(look(session(root, master), root)) + "\n")


if __name__ == "__main__":
    main()

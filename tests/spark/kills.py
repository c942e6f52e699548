"""Kills tasks of a session at random, as an operator or a preemption would; removes what such tasks left."""

from __future__ import annotations

import datetime as dt
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any, final

import lakemark
from spark_tables import wait_for

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import SparkSession

# Between two looks at what runs.
LOOK_SECONDS = 0.015


def slow(column: str) -> str:
    """A condition that is true and keeps a task busy for each row, so that there is something to kill.

    MERGE takes no condition that need not be the same when it is evaluated again, which rules out a sleep.
    """
    return f"aggregate(sequence(1, 3000), {column}, (a, x) -> (a * 31 + x) % 1009) > -2000"


def scala(spark: SparkSession) -> Any:
    """Spark's own context: PySpark neither lists nor kills single tasks."""
    return spark.sparkContext._jsc.sc()  # noqa: SLF001 - there is no other way to it


def tasks(spark: SparkSession, stage: int) -> list[Any]:
    """What Spark knows of the tasks of a stage's last attempt."""
    info = spark.sparkContext.statusTracker().getStageInfo(stage)
    if info is None:
        return []
    found = scala(spark).statusStore().taskList(stage, info.currentAttemptId, 1000)
    return [found.apply(at) for at in range(found.size())]


def running(spark: SparkSession) -> list[int]:
    """The ids of the tasks that run now."""
    stages = spark.sparkContext.statusTracker().getActiveStageIds()
    return [task.taskId() for stage in stages for task in tasks(spark, stage) if str(task.status()) == "RUNNING"]


def busy(spark: SparkSession) -> int:
    """How many tasks run now, those of statements that failed meanwhile among them."""
    executors = scala(spark).statusStore().executorList(True)
    return sum(executors.apply(at).activeTasks() for at in range(executors.size()))


def age(folder: Path) -> None:
    """Lets everything in a store be two days old."""
    old = time.time() - 2 * 86400
    for path in (folder / "_lakemark").rglob("*"):
        os.utime(path, (old, old))


def vacuum_old(spark: SparkSession, folder: Path) -> None:
    """Removes what tasks left that were killed, or whose statement failed, when they had just finished their file."""
    wait_for(lambda: busy(spark) == 0)
    age(folder)
    lakemark.Table(folder).vacuum(older_than=dt.timedelta(days=1))


@final
class Killer:
    """Within the block some running tasks are killed, at most `most`; Spark runs them again, however often."""

    def __init__(self, spark: SparkSession, seed: int, *, most: int = 6, chance: float = 0.3) -> None:
        self.killed = 0
        self._spark = spark
        self._scala = scala(spark)
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._most, self._chance = most, chance
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for task in running(self._spark):
                if self.killed < self._most and self._random.random() < self._chance:
                    # With an interrupt and without one, as Spark does by its settings.
                    interrupt = self._random.random() < 0.5
                    self.killed += bool(self._scala.killTaskAttempt(task, interrupt, "killed by a test"))

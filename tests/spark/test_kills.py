"""Tasks that are killed at random: answers are right, nothing is written twice or half, and a vacuum removes the rest.

`LAKEMARK_KILL_ROUNDS` says how often each statement is run under fire.
"""

from __future__ import annotations

import os
import random
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from kills import LOOK_SECONDS, Killer, slow, vacuum_old
from spark_tables import wait_for
from test_build_job import declare, indexes
from test_writes import staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("LAKEMARK_KILL_ROUNDS", "1"))
MORE_ROUNDS = 5
FILES, ROWS = 4, 2000


@pytest.fixture(autouse=True)
def tasks_have_ended(spark: SparkSession) -> Iterator[None]:
    """Spark does not wait for tasks that it killed; what they give back is looked at afterwards."""
    yield
    context = spark.sparkContext
    allocator = context._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()  # noqa: SLF001 - there is no other way to the JVM
    wait_for(lambda: not context.statusTracker().getActiveStageIds() and allocator.getAllocatedMemory() == 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    for part in range(FILES):
        ids = range(part * ROWS, part * ROWS + ROWS)
        table = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n * 7919 % 1009 for n in ids], pa.int64())})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=ROWS // 4)
    return folder


def rounds(hits: list[int]) -> Iterator[int]:
    """Rounds by their numbers; some more if no task was running when one was to be hit."""
    for number in range(ROUNDS + MORE_ROUNDS):
        if number < ROUNDS or not any(hits):
            yield number


def before() -> dict[int, int]:
    return {n: n * 7919 % 1009 for n in range(FILES * ROWS)}


def of_python(folder: Path) -> dict[int, int]:
    found = pa.table(lakemark.Table(folder).scan()).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["n"] for row in found}


def vacuum_keeps_what_counts(spark: SparkSession, folder: Path, expected: dict[int, int]) -> None:
    vacuum_old(spark, folder)
    assert staged(folder) == []
    assert of_python(folder) == expected


def test_reads(spark: SparkSession, folder: Path) -> None:
    lakemark.Table(folder, key="id").delete(list(range(0, 8000, 97)))
    expected = {n: value for n, value in before().items() if n % 97}
    killed: list[int] = []
    for seed in rounds(killed):
        ours = spark.read.format("lakemark").load(str(folder)).where(f"id % 8 < 2 AND {slow('id')}")
        with Killer(spark, seed) as killer:
            found = ours.collect()
        assert sorted(map(tuple, found)) == sorted((n, v) for n, v in expected.items() if n % 8 < 2)
        killed.append(killer.killed)
    assert any(killed)


CHANGES = {
    "insert": "INSERT INTO lm.`{t}` SELECT id + {fresh}, id FROM slow",
    "update": "MERGE INTO lm.`{t}` t USING slow s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + 1",
    "mixed": """MERGE INTO lm.`{t}` t USING slow s ON t.id = s.id * 5 + {last}
        WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET n = -t.n
        WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id * 5 + {last}, s.id)""",
}
SOURCE_ROWS = 1200


def changed(statement: str, was: dict[int, int], fresh: int, last: int) -> dict[int, int]:
    """What the statements mean."""
    now = dict(was)
    for n in range(SOURCE_ROWS):
        if statement == "insert":
            now[n + fresh] = n
        elif statement == "update":
            if n in was:
                now[n] += 1
        elif n * 5 + last not in was:
            now[n * 5 + last] = n
        elif n % 2 == 0:
            del now[n * 5 + last]
        else:
            now[n * 5 + last] *= -1
    return now


def slow_source(spark: SparkSession) -> None:
    spark.range(0, SOURCE_ROWS, 1, 6).where(slow("id")).createOrReplaceTempView("slow")


@pytest.mark.parametrize("statement", CHANGES)
def test_changes_are_made_once(spark: SparkSession, folder: Path, statement: str) -> None:
    table = lakemark.Table(folder, key="id")
    slow_source(spark)
    expected, killed = before(), list[int]()
    for seed in rounds(killed):
        fresh, last = 100_000 * (seed + 1), 4000 + seed
        sequence = table.updates.sequence
        with Killer(spark, seed + 10) as killer:
            spark.sql(CHANGES[statement].format(t=folder, fresh=fresh, last=last))
        expected = changed(statement, expected, fresh, last)
        assert table.updates.sequence == sequence + 1
        assert of_python(folder) == expected
        killed.append(killer.killed)
    assert any(killed)
    vacuum_keeps_what_counts(spark, folder, expected)


def cancel(spark: SparkSession, over: threading.Event, moment: float, in_job: bool) -> None:
    """Cancels all jobs at a moment of a statement, or while it has one: a busy machine may take long to plan it."""
    if in_job:
        while not spark.sparkContext.statusTracker().getActiveJobsIds() and not over.wait(LOOK_SECONDS):
            pass
    else:
        over.wait(moment)
    spark.sparkContext.cancelAllJobs()


def test_a_statement_that_is_cancelled_at_any_moment_is_made_or_not(spark: SparkSession, folder: Path) -> None:
    lakemark.Table(folder, key="id")
    slow_source(spark)
    expected, moments, cancelled = before(), random.Random(5), list[int]()  # noqa: S311 - no secret
    for number in rounds(cancelled):
        fresh = 100_000 * (number + 1)
        over = threading.Event()
        moment, in_job = moments.uniform(0.1, 1.2), number >= ROUNDS
        canceller = threading.Thread(target=cancel, args=(spark, over, moment, in_job))
        canceller.start()
        try:
            spark.sql(CHANGES["insert"].format(t=folder, fresh=fresh))
        except Exception as error:
            if "cancel" not in str(error):
                raise
            cancelled.append(1)
        else:
            expected = changed("insert", expected, fresh, 0)
            cancelled.append(0)
        finally:
            over.set()
            canceller.join()
        assert of_python(folder) == expected
    assert any(cancelled)
    vacuum_keeps_what_counts(spark, folder, expected)


def test_builds(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    many = pa.table({"k": pa.array([n * 7919 % 100_003 for n in range(150_000)], pa.int64())})
    for part in range(FILES):
        pq.write_table(many, folder / f"part-{part}.parquet", row_group_size=20_000)
    killed: list[int] = []
    for seed in rounds(killed):
        declare(folder, "k", files_per_segment=1)
        with Killer(spark, seed, chance=0.4) as killer:
            spark.sql(f"CALL lm.system.build(table => '{folder}')")
        killed.append(killer.killed)
        (index,) = lakemark.Table(folder).indexes
        assert (index.coverage, index.segments) == (1.0, FILES)
        assert lakemark.Table(folder).count("k = 7919") == FILES * many["k"].to_pylist().count(7919)
        lakemark.Table(folder).drop_index("k_bitmap")
    assert any(killed)
    declare(folder, "k", files_per_segment=1)
    lakemark.Table(folder).build(progress=False)
    vacuum_old(spark, folder)
    assert len(indexes(folder)) == FILES
    assert lakemark.Table(folder).verify()

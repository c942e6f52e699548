"""Bytes of a store that are not what they were: right answers or typed errors, and the JVM lives on.

Index files that are damaged cost time and no row. Buffered rows are data: if they are damaged or gone, reads and
writes fail.
`LAKEMARK_DAMAGES` says how many bytes are damaged, each in a copy of the table.
"""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import lakemark
from spark_tables import create_indexes, write_folder
from test_errors import failure

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DAMAGES = int(os.environ.get("LAKEMARK_DAMAGES", "16"))
ASKED = (
    "SELECT count(*), sum(id), string(count(DISTINCT city)) FROM {t} WHERE k = 7",
    "SELECT count(*), sum(id), string(count(DISTINCT city)) FROM {t} WHERE id >= 0 AND amount IS NOT NULL",
    "SELECT count(*), sum(id), max(city) FROM {t} WHERE id IN (5, 1500, 1999, 7000)",
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Indexes, a run and a log."""
    folder = write_folder(tmp_path_factory.mktemp("sound") / "t", files=2)
    create_indexes(folder, "k", "city")
    table = lakemark.Table(folder, key="id")
    table.upsert([{"id": n, "city": "run", "k": 7} for n in range(1490, 1510)])
    table.flush()
    # The log that comes is younger, also where the clock of the file system has not ticked since.
    for log in (folder / "_lakemark" / "updates").glob("*.lml"):
        os.utime(log, (0, 0))
    table.upsert([{"id": n, "city": "log", "k": 7} for n in range(6990, 7010)])
    table.delete([5])
    return folder


def answers(spark: SparkSession, folder: Path) -> list[tuple[object, ...]]:
    found = spark.sql(" UNION ALL ".join(f"({each.format(t=f'lm.`{folder}`')})" for each in ASKED))
    return [tuple(row) for row in found.collect()]


def test_any_byte_of_a_store(spark: SparkSession, sound: Path, tmp_path: Path) -> None:
    expected = answers(spark, sound)
    chance, outcomes = random.Random(3), {"right": 0, "refused": 0}  # noqa: S311 - no secret
    files = sorted(path.relative_to(sound) for path in (sound / "_lakemark").rglob("*.lm*"))
    assert {path.suffix for path in files} == {".lmm", ".lmx", ".lmr", ".lml"}
    for number in range(DAMAGES):
        # What an open table remembers is not read again.
        folder = tmp_path / str(number)
        shutil.copytree(sound, folder)
        victim = folder / files[number % len(files)]
        content = bytearray(victim.read_bytes())
        content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
        victim.write_bytes(content)
        try:
            found = answers(spark, folder)
        except Exception as error:
            if "LakemarkException" not in failure(lambda folder=folder: answers(spark, folder)):
                raise AssertionError(victim) from error
            outcomes["refused"] += 1
        else:
            assert found == expected, victim
            outcomes["right"] += 1
        shutil.rmtree(folder)
    assert min(outcomes.values()) > 0
    assert answers(spark, sound) == expected


@pytest.mark.parametrize(("suffix", "cut"), [(".lmr", None), (".lmr", -8), (".lml", None), (".lml", 20)])
def test_buffered_changes_that_are_gone_or_cut(
    spark: SparkSession, sound: Path, tmp_path: Path, suffix: str, cut: int | None
) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound, folder)
    victims = (folder / "_lakemark" / "updates").glob(f"*{suffix}")
    victim = max(victims, key=lambda path: path.stat().st_mtime_ns)
    if cut is None:
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:cut])
    table = f"lm.`{folder}`"
    # A row with columns that the indexes do not have is read from the run itself.
    for statement in (
        f"SELECT id, tags FROM {table} WHERE id > 1400",
        f"UPDATE {table} SET city = 'x' WHERE id = 1495",
        f"MERGE INTO {table} t USING (SELECT 1495L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ):
        text = failure(lambda statement=statement: spark.sql(statement).collect())
        assert "LakemarkException$Corrupt" in text, text
        assert victim.name in text
        assert "restore it" in text
    assert spark.range(3).count() == 3


def test_a_data_file_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    delta = tmp_path / "delta"
    for start in (0, 100):
        ids = list(range(start, start + 100))
        deltalake.write_deltalake(delta, pa.table({"id": ids, "n": ids}), mode="append")
    lakemark.Table(delta, key="id")
    planned = spark.sql(f"SELECT id, n FROM lm.`{delta}` WHERE n >= 0")
    planned._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark plans no other way
    victim = min(delta.glob("*.parquet"))
    victim.unlink()
    for action in (
        planned.collect,
        lambda: spark.sql(f"SELECT sum(n + 1) FROM lm.`{delta}`").collect(),
        lambda: spark.sql(f"UPDATE lm.`{delta}` SET n = n + 1 WHERE n >= 0"),
        lambda: spark.sql(f"DELETE FROM lm.`{delta}` WHERE n % 2 = 0"),
    ):
        text = failure(action)
        assert "LakemarkException$NotFound" in text, text
        assert victim.name in text
    assert lakemark.Table(delta).updates.sequence == 0
    assert spark.range(3).count() == 3

"""The predicate corpus through Spark, in every state of the marks; DuckDB and plain Spark are the judges.

The session comes from the fixture `spark`. The table is the corpus' own without the types that plain Spark cannot read.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from corpus import cases
from corpus.answers import mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

# Spark plans each predicate anew, so the states that differ little from `on` get every n-th one.
EVERY = {"on": 1, "absent": 25, "half_built": 6, "stale": 6, "segments_corrupted": 6, "manifest_corrupted": 25}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> cases.Source:
    return cases.portable_source(tmp_path_factory.mktemp("corpus") / "plain")


@pytest.fixture(scope="module")
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture(scope="module")
def plain(utc: SparkSession, source: cases.Source) -> DataFrame:
    """The same files read by Spark alone."""
    return utc.read.option("mergeSchema", "true").parquet(str(source.folder)).cache()


@pytest.fixture(scope="module")
def judge(source: cases.Source) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    files = f"read_parquet('{source.folder}/*.parquet', union_by_name = true)"
    connection.execute(f"CREATE VIEW t AS SELECT * FROM {files}")
    return connection


def asked(source: cases.Source, every: int) -> list[cases.Case]:
    readable = [case for case in cases.CASES if case.columns <= set(source.columns)]
    assert len(readable) > 500
    return readable[::every]


def ids(frame: DataFrame, case: cases.Case) -> list[int] | str:
    try:
        rows = frame.where(case.spark or case.sql).select("id").collect()
    except Exception as error:  # noqa: BLE001 - Spark's error classes differ between versions; only that it fails counts
        return f"error: {type(error).__name__}"
    return sorted(row[0] for row in rows)


def expected_ids(case: cases.Case, plain: DataFrame, judge: duckdb.DuckDBPyConnection) -> list[int] | str:
    if "spark" in case.differs or "duckdb" in case.differs:
        return ids(plain, case)
    sql = f"SELECT id FROM t WHERE {case.duckdb or case.sql} ORDER BY id"
    return [row[0] for row in judge.execute(sql).fetchall()]


@pytest.mark.parametrize("state", cases.STATES)
def test_law_1_marks_never_change_the_rows_that_spark_sees(
    state: str,
    source: cases.Source,
    plain: DataFrame,
    judge: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases.STATES[state](source, tmp_path / "table", mark)
    marked = plain.sparkSession.read.format("lakemark").load(str(tmp_path / "table"))
    wrong = {}
    for case in asked(source, EVERY[state]):
        found, expected = ids(marked, case), expected_ids(case, plain, judge)
        if found != expected:
            wrong[case.id] = f"{brief(found)}, not {brief(expected)}: {case.spark or case.sql}"
    assert wrong == {}


def test_law_1_switching_the_marks_off_never_changes_the_rows_that_spark_sees(
    source: cases.Source, plain: DataFrame, judge: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    cases.STATES["on"](source, tmp_path / "table", mark)
    unmarked = plain.sparkSession.read.format("lakemark").option("use_index", "false").load(str(tmp_path / "table"))
    chosen = asked(source, 10)
    answers = {case.id: (ids(unmarked, case), expected_ids(case, plain, judge)) for case in chosen}
    assert {name: pair for name, pair in answers.items() if pair[0] != pair[1]} == {}


def brief(answer: list[int] | str) -> str:
    return answer if isinstance(answer, str) else f"{len(answer)} rows"

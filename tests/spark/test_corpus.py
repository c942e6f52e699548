"""The predicate corpus, asked of Spark: the rows must be those of Spark without indexes, and as many as DuckDB counts.

Neither Spark's own Parquet reader nor its cache with pruning is a judge here: their pruning by statistics loses rows
where NaN and -0.0 are compared.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

import lakemark
from corpus import cases
from corpus.answers import create_indexes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

# Each state costs a query per predicate; the others differ from these only in what the Rust suite tests already. What a
# predicate means depends on these settings, so that each state has others. Two of them share the predicates.
STATES = {
    "on": {},
    "half_built": {"spark.sql.ansi.enabled": "false", "spark.sql.caseSensitive": "true"},
    "buffered": {"spark.sql.session.timeZone": "America/New_York"},
}
PREDICATES_PER_QUERY = 25
DRAWN = {"on": slice(None), "half_built": slice(0, None, 2), "buffered": slice(1, None, 2)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> cases.Source:
    return cases.portable_source(tmp_path_factory.mktemp("portable"))


@pytest.fixture(scope="module")
def askable(source: cases.Source) -> list[cases.Case]:
    """Predicates over columns that Spark can read."""
    found = [case for case in cases.CASES if case.columns <= set(source.columns)]
    assert len(found) > 400
    return found


@pytest.fixture(params=STATES)
def state(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """A state of the indexes, in a session with its settings."""
    before = {name: spark.conf.get(name) for name in STATES[request.param]}
    for name, value in STATES[request.param].items():
        spark.conf.set(name, value)
    yield request.param
    for name, value in before.items():
        spark.conf.set(name, value)


def as_elsewhere(case: cases.Case, state: str) -> bool:
    """Whether these settings choose the rows that DuckDB chooses."""
    in_utc = "spark.sql.session.timeZone" not in STATES[state]
    return "spark" not in case.differs and (in_utc or not any("tz_" in column for column in case.columns))


def indexed(state: str, source: cases.Source, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lakemark.LakemarkWarning)
        cases.STATES[state](source, folder, create_indexes)
    return folder


def answers(table: DataFrame, asked: list[cases.Case]) -> dict[str, tuple[int, int]]:
    """How many rows each predicate chooses, and the sum of their ids; each predicate has a scan of its own."""
    found = {}
    for start in range(0, len(asked), PREDICATES_PER_QUERY):
        frames = [
            table.where(case.spark or case.sql).selectExpr(
                f"'{case.id}' AS name", "count(id) AS n", "coalesce(sum(id), 0) AS total"
            )
            for case in asked[start : start + PREDICATES_PER_QUERY]
        ]
        union = frames[0]
        for frame in frames[1:]:
            union = union.unionAll(frame)
        found |= {row.name: (row.n, row.total) for row in union.collect()}
    return found


def test_indexes_in_any_state_change_no_row(
    spark: SparkSession, source: cases.Source, askable: list[cases.Case], tmp_path: Path, state: str
) -> None:
    folder = indexed(state, source, tmp_path / state)
    askable = askable[DRAWN[state]]
    if spark.conf.get("spark.sql.ansi.enabled") == "true":
        askable = [case for case in askable if "ANSI" not in case.differs.get("spark", "")]
    ours = answers(spark.read.format("lakemark").load(str(folder)), askable)
    assert len(ours) == len(askable)
    expected = {case.id: case.rows for case in askable if case.rows is not None and as_elsewhere(case, state)}
    assert {name: n for name, (n, _) in ours.items() if name in expected} == expected
    spark.conf.set("spark.sql.inMemoryColumnarStorage.partitionPruning", "false")
    off = spark.read.format("lakemark").option("use_index", "false").load(str(folder)).cache()
    try:
        assert ours == answers(off, askable)
    finally:
        off.unpersist(blocking=True)

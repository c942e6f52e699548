"""The predicate corpus, asked of Spark: the rows must be those of Spark without marks, and as many as DuckDB counts.

Neither Spark's own Parquet reader nor its cache with pruning is a judge here: their pruning by statistics loses rows
where NaN and -0.0 are compared.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

import lakemark
from corpus import cases
from corpus.answers import mark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

# Each state costs a query per predicate; the others differ from these only in what the Rust suite tests already.
STATES = ("on", "half_built", "pending")
PREDICATES_PER_QUERY = 25


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> cases.Source:
    return cases.portable_source(tmp_path_factory.mktemp("portable"))


@pytest.fixture(scope="module")
def askable(source: cases.Source) -> list[cases.Case]:
    """Predicates over columns that Spark can read, without those that are errors in Spark."""
    found = [case for case in cases.CASES if case.columns <= set(source.columns) and "spark" not in case.differs]
    assert len(found) > 400
    return found


def marked(state: str, source: cases.Source, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lakemark.LakemarkWarning)
        cases.STATES[state](source, folder, mark)
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


@pytest.mark.parametrize("state", STATES)
def test_marks_in_any_state_change_no_row(
    spark: SparkSession, source: cases.Source, askable: list[cases.Case], tmp_path: Path, state: str
) -> None:
    folder = marked(state, source, tmp_path / state)
    ours = answers(spark.read.format("lakemark").load(str(folder)), askable)
    assert len(ours) == len(askable)
    expected = {case.id: case.rows for case in askable if case.rows is not None}
    assert {name: n for name, (n, _) in ours.items() if name in expected} == expected
    spark.conf.set("spark.sql.inMemoryColumnarStorage.partitionPruning", "false")
    off = spark.read.format("lakemark").option("use_index", "false").load(str(folder)).cache()
    try:
        assert ours == answers(off, askable)
    finally:
        off.unpersist(blocking=True)

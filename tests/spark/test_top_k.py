"""ORDER BY with a LIMIT reads only rows that may be among the first, and gives vanilla Spark's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
import lakemark.spark
from spark_tables import plan_of
from test_runtime_filters import Facts, Read, dimension, read

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = 40_000
ROW_GROUPS = 20
# Of several thousand values, so that a bound leaves most of them out.
INDEXED = ("n", "s", "f", "few")


def table(start: int, stop: int) -> pa.Table:
    """`n` and `s` are in no order, with ties and each eleventh NULL; `at` is the row's number."""
    ids = range(start, stop)
    numbers = [n * 7_919 % 20_011 for n in ids]

    def nulls(values: list[object]) -> list[object]:
        return [None if n % 11 == 0 else value for n, value in zip(ids, values, strict=True)]

    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "n": pa.array(nulls(list(numbers)), pa.int32()),
            "s": pa.array(nulls([f"name {n:05}" for n in numbers])),
            "f": pa.array([float("nan") if n % 13 == 0 else n / 8 for n in ids], pa.float64()),
            "few": pa.array([n % 4 for n in ids], pa.int32()),
            "plain": pa.array(numbers, pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("top") / "t"
    folder.mkdir()
    for file in range(2):
        rows = table(file * ROWS // 2, (file + 1) * ROWS // 2)
        pq.write_table(rows, folder / f"part-{file}.parquet", row_group_size=ROWS // ROW_GROUPS)
    indexed = lakemark.Table(folder)
    for column in INDEXED:
        indexed.create_index(column, using="bitmap", build=False)
    indexed.create_index("id", using="key", build=False)
    indexed.build(progress=False)
    return folder


@pytest.fixture
def facts(spark: SparkSession, folder: Path) -> Facts:
    return Facts(folder, spark.read.format("lakemark").load(str(folder)), spark.read.parquet(str(folder)))


def both(facts: Facts, query: str) -> tuple[DataFrame, DataFrame]:
    """The query over our scan and over Spark's own, of the view `t`."""
    frames = []
    for frame in (facts.ours, facts.theirs):
        frame.createOrReplaceTempView("t")
        frames.append(frame.sparkSession.sql(query))
    return frames[0], frames[1]


def in_words(frame: DataFrame) -> list[str]:
    """The rows in their order; NaN is no equal of itself."""
    return [str(row) for row in frame.collect()]


@pytest.mark.parametrize(
    "order", ["n", "n DESC", "n NULLS LAST", "n DESC NULLS FIRST", "s DESC", "s NULLS LAST", "id", "id DESC"]
)
@pytest.mark.parametrize("limit", [1, 25])
def test_the_first_rows_are_sparks_and_few_are_read(facts: Facts, order: str, limit: int) -> None:
    ours, theirs = both(facts, f"SELECT * FROM t ORDER BY {order}, id LIMIT {limit}")
    assert "top: " in plan_of(ours)
    assert in_words(ours) == in_words(theirs)
    most = {"n": ROWS // 11 + 1, "n DESC NULLS FIRST": ROWS // 11 + 1}
    assert read(ours, facts.folder).rows <= most.get(order, 2_500)


def test_row_groups_without_a_first_row_are_skipped(facts: Facts) -> None:
    ours, theirs = both(facts, "SELECT id FROM t ORDER BY id DESC LIMIT 10")
    assert in_words(ours) == in_words(theirs)
    found = read(ours, facts.folder)
    assert (found.skipped, found.row_groups) == (ROW_GROUPS - 1, ROW_GROUPS)


def test_further_columns_decide_among_equals(facts: Facts) -> None:
    for query in (
        "SELECT n, f, id FROM t ORDER BY n NULLS LAST, f DESC, id LIMIT 30",
        "SELECT n, id FROM t ORDER BY n DESC, id DESC LIMIT 3",
        "SELECT id, n AS m FROM t ORDER BY m NULLS LAST, id LIMIT 7",
        "SELECT id, n FROM t ORDER BY n NULLS LAST, id LIMIT 5 OFFSET 20",
    ):
        ours, theirs = both(facts, query)
        assert in_words(ours) == in_words(theirs), query
        assert read(ours, facts.folder).rows < 2_500, query


def test_filters_that_are_certain_go_with_it(facts: Facts) -> None:
    for condition in ("few = 3", "n > 5000", "few IN (1, 2) AND n IS NOT NULL", "n IS NULL"):
        ours, theirs = both(facts, f"SELECT id, n FROM t WHERE {condition} ORDER BY n NULLS LAST, id LIMIT 20")
        assert in_words(ours) == in_words(theirs), condition
    ours, _ = both(facts, "SELECT id, n FROM t WHERE few = 3 ORDER BY n NULLS LAST, id LIMIT 20")
    ours.collect()
    assert read(ours, facts.folder).rows < 1_500


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, f FROM t ORDER BY f DESC, id LIMIT 5",
        "SELECT id, plain FROM t ORDER BY plain, id LIMIT 5",
        "SELECT id, n FROM t WHERE f > 100 ORDER BY n NULLS LAST, id LIMIT 5",
        "SELECT id, n FROM t ORDER BY n + 1 NULLS LAST, id LIMIT 5",
        "SELECT id, few FROM t ORDER BY few, id LIMIT 5",
        "SELECT id, n FROM t ORDER BY n, id LIMIT 30000",
    ],
    ids=["floats", "no index", "a filter of Spark's", "an expression", "few values", "most rows"],
)
def test_where_nothing_is_known_or_saved_all_is_read(facts: Facts, query: str) -> None:
    ours, theirs = both(facts, query)
    assert in_words(ours) == in_words(theirs)
    assert read(ours, facts.folder).skipped == 0


def test_a_join_above_the_first_rows_does_not_narrow_them(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dimension(spark, tmp_path / "d", few=pa.array([2], pa.int32())).createOrReplaceTempView("d")
    query = "SELECT a.id FROM (SELECT id, few FROM t ORDER BY n NULLS LAST, id LIMIT 50) a JOIN d ON a.few = d.few"
    ours, theirs = both(facts, query)
    assert sorted(ours.collect()) == sorted(theirs.collect())


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "in a run"])
def test_buffered_rows_are_sorted_with_the_others(spark: SparkSession, tmp_path: Path, flushed: bool) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(table(0, 20_000), folder / "p.parquet", row_group_size=2_000)
    indexed = lakemark.Table(folder, key="id")
    indexed.create_index("n", using="bitmap", build=False)
    indexed.build(progress=False)
    least = sorted((n, i) for i, n in enumerate(table(0, 20_000)["n"].to_pylist()) if n is not None)[:40]
    # The first rows go, one becomes NULL, new ones come before and between.
    indexed.delete(pa.table({"id": pa.array([i for _, i in least[:10]], pa.int64())}))
    changed = table(20_000, 20_006)
    changed = changed.set_column(0, "id", pa.array([least[12][1], 90_000, 90_001, 90_002, 90_003, 90_004], pa.int64()))
    indexed.upsert(changed.set_column(1, "n", pa.array([None, -5, least[20][0], 7, None, 20_500], pa.int32())))
    if flushed:
        indexed.flush()
    pq.write_table(pa.table(indexed.scan()), tmp_path / "expected.parquet")
    ours = spark.read.format("lakemark").load(str(folder))
    facts = Facts(folder, ours, spark.read.parquet(str(tmp_path / "expected.parquet")))
    for order in ("n", "n NULLS LAST", "n DESC", "n DESC NULLS FIRST"):
        for limit in (1, 15):
            found, expected = both(facts, f"SELECT id, n, s FROM t ORDER BY {order}, id LIMIT {limit}")
            assert in_words(found) == in_words(expected), (order, limit)
    found, _ = both(facts, "SELECT id FROM t ORDER BY n NULLS LAST LIMIT 15")
    found.collect()
    assert read(found, folder).rows < 2_500


def test_files_that_no_index_covers_are_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(table(0, 20_000), folder / "p.parquet", row_group_size=2_000)
    indexed = lakemark.Table(folder)
    indexed.create_index("id", using="bitmap", build=False)
    indexed.build(progress=False)
    pq.write_table(table(30_000, 30_100), folder / "later.parquet")
    facts = Facts(folder, spark.read.format("lakemark").load(str(folder)), spark.read.parquet(str(folder)))
    ours, theirs = both(facts, "SELECT id FROM t ORDER BY id DESC LIMIT 120")
    assert in_words(ours) == in_words(theirs)
    found = read(ours, folder)
    assert found.skipped == 9
    assert found.rows < 2_100 + 100


def test_explain_names_the_order(facts: Facts) -> None:
    ours, _ = both(facts, "SELECT id FROM t ORDER BY id DESC LIMIT 10")
    (scan,) = lakemark.spark.explain(ours).scans
    assert scan.top == "10 by id DESC NULLS LAST"
    assert "the first:" in str(scan)
    assert read_of_indexes_off(facts) == Read(0, 0, ROWS)


def read_of_indexes_off(facts: Facts) -> Read:
    """Without indexes everything is read."""
    spark = facts.ours.sparkSession
    off = spark.read.format("lakemark").option("use_index", "false").load(str(facts.folder)).orderBy("id").limit(3)
    assert [row.id for row in off.collect()] == [0, 1, 2]
    return read(off, facts.folder)

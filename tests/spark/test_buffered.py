"""Buffered updates: Spark sees what our own session sees, whatever is buffered and wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

import lakemark
from spark_tables import (
    ROW_GROUP_ROWS,
    create_indexes,
    delete_by_vector,
    has_filter,
    is_counted,
    plan_of,
    rows,
    same_rows,
    write_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

INDEXED = ("id", "k", "city", "price", "day")
# Three runs are merged into one as soon as they are there.
SMALL_CACHE = {"cache_bytes": 1 << 20, "page_bytes": 1 << 16}
INSERTED = range(5000, 5040)
REPLACED = range(100, 140)
UPDATED = range(1500, 1540)
DELETED = (*range(700, 720), 5001, 5002, 101)
HIDDEN_BY_VECTOR = [0, 3, 5, 77]

# Exact without buffered updates, and in words that Spark and our session share.
CONDITIONS = (
    "k = 7",
    "k <> 7",
    "k IS NULL",
    "k >= 20 AND city = 'Rom'",
    "k IN (1, 7, 50) OR city IS NULL",
    "NOT (k = 15 AND city = 'Wien')",
    "city = 'pending'",
    "city LIKE 'Z%'",
    "price > 4.5",
    "day >= DATE '2024-03-01'",
    "id = 5000",
    "id BETWEEN 95 AND 145",
    "id = 700",
    "k = 1 AND k = 2",
    # Not certain in any case.
    "amount > 100 AND k = 7",
    "k + 1 = 8",
    "place.x = 5007",
    "k = 7 OR place.seen",
    "tiny = 5",
    "city LIKE '%ich'",
)

QUERIES = (
    "SELECT count(*) AS n FROM t",
    "SELECT count(*) AS n FROM t WHERE k = 7",
    "SELECT count(k) AS n, min(k) AS low, max(k) AS high, sum(k) AS total FROM t",
    "SELECT min(id) AS low, max(id) AS high FROM t",
    "SELECT min(day) AS low, max(city) AS high, count(DISTINCT city) AS n FROM t WHERE k < 20",
    "SELECT sum(price) AS total FROM t WHERE city = 'pending'",
    "SELECT city, count(*) AS n, sum(k) AS total FROM t GROUP BY city",
    "SELECT k, city, count(*) AS n FROM t WHERE k BETWEEN 0 AND 9 GROUP BY k, city",
    "SELECT a.id AS a, b.id AS b, b.city FROM t a JOIN t b ON a.k = b.id WHERE b.city = 'Rom'",
    "SELECT a.id AS a, b.id AS b FROM t a JOIN t b ON a.id = b.id + 4900 WHERE b.k = 1",
    "SELECT id, k FROM t WHERE k IS NOT NULL ORDER BY id DESC LIMIT 7",
    "SELECT id, city FROM t ORDER BY id LIMIT 110",
    "SELECT id, place.x AS x, place.seen AS seen FROM t WHERE place.x > 2990",
    "SELECT count(*) AS n FROM t WHERE id IN (SELECT k FROM t WHERE city = 'pending')",
)


def write_plain(folder: Path) -> None:
    write_folder(folder)


def write_hive(folder: Path) -> None:
    for part in range(3):
        path = folder / f"zone={part % 2}" / f"part-{part}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(part * 1000, part * 1000 + 1000), path, row_group_size=ROW_GROUP_ROWS)


def write_delta(folder: Path) -> None:
    for part in range(3):
        # A moment without a zone would need a feature that a table with deletion vectors as these has not.
        data = rows(part * 1000, part * 1000 + 1000).drop_columns("local")
        data = data.append_column("year", pa.array([2021 + part] * 1000, pa.int32()))
        deltalake.write_deltalake(folder, data, mode="append", partition_by=["year"])
    delete_by_vector(folder, 2021, HIDDEN_BY_VECTOR)


KINDS: dict[str, Callable[[Path], None]] = {"plain": write_plain, "hive": write_hive, "delta": write_delta}


def new_rows(kind: str, start: int, stop: int) -> pa.Table:
    """Rows of a partition that is there, and of a new one."""
    data = rows(start, stop)
    if kind == "plain":
        return data
    name, values = ("zone", (0, 5)) if kind == "hive" else ("year", (2021, 2030))
    data = data.append_column(name, pa.array([values[n % 2] for n in range(data.num_rows)], pa.int32()))
    return data if kind == "hive" else data.drop_columns("local")


def write_table(kind: str, folder: Path) -> lakemark.Table:
    """An indexed table with a key."""
    KINDS[kind](folder)
    create_indexes(folder, *INDEXED)
    table = lakemark.Table(folder)
    table.declare_key("id", progress=False, **SMALL_CACHE)
    return table


def change(kind: str, table: lakemark.Table, flush: Callable[[], object]) -> None:
    """Changes of every sort; some rows are changed twice. `flush` is called between them."""
    table.insert(new_rows(kind, INSERTED.start, INSERTED.stop))
    others = new_rows(kind, 2100, 2100 + len(REPLACED))
    table.upsert(others.set_column(0, "id", pa.array(REPLACED, pa.int64())))
    flush()
    table.update({"id": list(UPDATED), "city": ["pending"] * len(UPDATED), "k": [n % 10 for n in UPDATED]})
    table.update([{"id": 5000, "city": None}, {"id": 99999, "city": "nowhere"}])
    table.delete(list(DELETED))


def ids(kind: str) -> set[int]:
    hidden = HIDDEN_BY_VECTOR if kind == "delta" else []
    return ({*range(3000), *INSERTED} - {*DELETED}) - {*hidden}


@pytest.fixture(
    scope="module",
    params=[("plain", "buffer"), ("plain", "run"), ("hive", "both"), ("delta", "buffer"), ("delta", "both")],
    ids="-".join,
)
def changed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, lakemark.Table]:
    kind, where = request.param
    table = write_table(kind, tmp_path_factory.mktemp(f"{kind}-{where}") / "t")
    change(kind, table, table.flush if where == "both" else lambda: None)
    if where == "run":
        table.flush()
    runs = len(table.info().updates.runs)
    assert runs == {"buffer": 0, "run": 1, "both": 1}[where]
    return kind, table


def load(spark: SparkSession, table: lakemark.Table) -> DataFrame:
    return spark.read.format("lakemark").load(table.location)


@pytest.fixture
def ours(spark: SparkSession, changed: tuple[str, lakemark.Table]) -> DataFrame:
    return load(spark, changed[1])


@pytest.fixture
def expected(spark: SparkSession, changed: tuple[str, lakemark.Table], tmp_path: Path) -> DataFrame:
    """The rows that our own session reads, as a file that Spark reads by itself."""
    pq.write_table(changed[1].scan().to_arrow(), tmp_path / "expected.parquet")
    return spark.read.parquet(str(tmp_path / "expected.parquet"))


def test_all_rows(ours: DataFrame, expected: DataFrame, changed: tuple[str, lakemark.Table]) -> None:
    found = [row.id for row in ours.select("id").collect()]
    assert len(found) == len(set(found))
    assert set(found) == ids(changed[0])
    assert ours.columns == expected.columns
    assert same_rows(ours, expected)
    assert f"buffered rows: {changed[1].info().updates.rows_buffered}" in plan_of(ours)


def test_a_changed_row_has_its_changes_and_nothing_else(
    spark: SparkSession, ours: DataFrame, tmp_path: Path, changed: tuple[str, lakemark.Table]
) -> None:
    KINDS[changed[0]](tmp_path / "untouched")
    before = load(spark, lakemark.Table(tmp_path / "untouched"))
    update = f"id BETWEEN {UPDATED.start} AND {UPDATED.stop - 1}"
    kept = [name for name in ours.columns if name not in ("city", "k")]
    assert same_rows(ours.where(update).select(kept), before.where(update).select(kept))
    assert {row.city for row in ours.where(update).collect()} == {"pending"}
    assert [row.city for row in ours.where("id = 5000").collect()] == [None]


def answers(frame: DataFrame) -> dict[str, tuple[int, int]]:
    """For each condition how many rows it chooses, and a hash of them."""
    parts = [
        frame.where(condition).selectExpr(f'"{condition}" AS name', "count(id) AS n", "bit_xor(xxhash64(*)) AS hash")
        for condition in CONDITIONS
    ]
    union = parts[0]
    for part in parts[1:]:
        union = union.unionAll(part)
    return {row.name: (row.n, row.hash) for row in union.collect()}


def test_conditions(ours: DataFrame, expected: DataFrame, changed: tuple[str, lakemark.Table]) -> None:
    found = answers(ours)
    assert found == answers(expected)
    assert {name: n for name, (n, _) in found.items()} == {name: changed[1].count(name) for name in CONDITIONS}
    assert found["city = 'pending'"][0] == len(UPDATED)
    assert found["id = 5000"][0] == 1
    assert found["id = 700"][0] == 0


def test_filters_and_aggregates_stay_with_the_indexes(ours: DataFrame) -> None:
    for condition in ("k = 7", "city = 'pending'", "k >= 20 AND city = 'Rom'", "day >= DATE '2024-03-01'"):
        assert not has_filter(ours.where(condition)), condition
        assert is_counted(ours.where(condition)), condition
    assert is_counted(ours)
    assert has_filter(ours.where("tiny = 5"))
    assert not is_counted(ours.where("tiny = 5"))
    assert "BatchScan" not in plan_of(ours.groupBy("city").count())
    # Of the buffered rows only those that the filter chooses are read.
    assert "buffered rows" not in plan_of(ours.where("id = 700"))
    assert "buffered rows: 1" in plan_of(ours.where("id = 5003"))


def test_queries_give_what_our_session_gives(
    spark: SparkSession, ours: DataFrame, changed: tuple[str, lakemark.Table]
) -> None:
    session = lakemark.connect()
    session.register("t", changed[1])
    ours.createOrReplaceTempView("t")
    for query in QUERIES:
        wanted = sorted((tuple(row.values()) for row in session.sql(query).to_arrow().to_pylist()), key=repr)
        assert sorted((tuple(row) for row in spark.sql(query).collect()), key=repr) == wanted, query


def test_limits(ours: DataFrame, expected: DataFrame) -> None:
    total = expected.count()
    assert len(ours.limit(50).collect()) == 50
    assert len(ours.limit(total + 5).collect()) == total
    assert [row.city for row in ours.where("city = 'pending'").limit(3).collect()] == ["pending"] * 3
    assert len(ours.where("id >= 4000").limit(10).select("tags").collect()) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_stays_right_while_runs_are_written_and_merged(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    table = write_table(kind, tmp_path / "t")
    change(kind, table, lambda: None)
    before = table.scan().to_arrow()
    of_buffer = load(spark, table).where("id > 50")
    plan_of(of_buffer)
    table.flush()
    of_run = load(spark, table).where("id > 50")
    plan_of(of_run)
    for round_ in range(3):
        table.update({"id": [1, 5003, 2500], "city": [f"round {round_}"] * 3})
        table.delete([2000 + round_])
        table.flush()
    assert any(run.passes == 2 for run in table.info().updates.runs)
    pq.write_table(before, tmp_path / "before.parquet")
    expected = spark.read.parquet(str(tmp_path / "before.parquet")).where("id > 50")
    for frame in (of_buffer, of_run):
        # The frame runs as it was planned.
        assert sorted(map(key_of, frame.collect())) == sorted(map(key_of, expected.collect()))
    now = load(spark, table)
    assert now.where("id IN (2000, 2001, 2002)").count() == 0
    assert [row.city for row in now.where("id = 2500").collect()] == ["round 2"]


def test_an_older_version(spark: SparkSession, tmp_path: Path) -> None:
    table = write_table("plain", tmp_path / "t")
    change("plain", table, table.flush)
    table.flush()
    version = table.history(1)[0].version
    table.delete([1, 2, 3])
    table.update({"id": [4], "city": ["later"]})
    table.flush()
    reader = spark.read.format("lakemark").option("version", version)
    was = reader.load(str(tmp_path / "t"))
    assert {row.id for row in was.select("id").collect()} == ids("plain")
    assert was.where("id IN (1, 2, 3)").count() == 3
    assert was.where("city = 'later'").count() == 0
    assert f"version {version} " in plan_of(was)
    now = load(spark, table)
    assert {row.id for row in now.select("id").collect()} == ids("plain") - {1, 2, 3}
    assert [row.id for row in now.where("city = 'later'").collect()] == [4]


def test_a_version_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    write_table("plain", tmp_path / "t")
    for version, kind, says in (("1000", "NotFound", "no version 1000"), ("last", "InvalidInput", "whole number")):
        with pytest.raises(Py4JJavaError) as caught:
            spark.read.format("lakemark").option("version", version).load(str(tmp_path / "t"))
        text = str(caught.value.java_exception.toString())
        assert f"LakemarkException${kind}" in text
        assert says in text


def key_of(row: object) -> str:
    """A row as text: NaN equals NaN there."""
    return repr(tuple(row))  # type: ignore[call-overload]


def test_rows_that_are_only_deleted_leave_everything_to_the_indexes(spark: SparkSession, tmp_path: Path) -> None:
    table = write_table("plain", tmp_path / "t")
    ours = load(spark, table)
    count = ours.where("k = 7").count()
    table.delete([701, 703])
    ours = load(spark, table)
    assert is_counted(ours.where("k = 7"))
    assert not has_filter(ours.where("k = 7"))
    assert ours.where("k = 7").count() == count - 2
    assert "buffered rows" not in plan_of(ours)


def test_a_store_elsewhere_and_the_index_off(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t")
    table = lakemark.Table(folder, store=tmp_path / "store")
    table.declare_key("id", progress=False)
    change("plain", table, table.flush)
    reader = spark.read.format("lakemark").option("store", str(tmp_path / "store"))
    assert {row.id for row in reader.load(str(folder)).select("id").collect()} == ids("plain")
    off = reader.option("use_index", "false").load(str(folder))
    assert {row.id for row in off.select("id").collect()} == ids("plain")
    assert off.where("city = 'pending'").count() == len(UPDATED)
    # Without its store it is the table that it was.
    assert spark.read.format("lakemark").load(str(folder)).count() == 3000


def test_many_rows_in_the_buffer_are_cut_into_tasks(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t")
    table = lakemark.Table(folder)
    table.declare_key("id", progress=False)
    before = load(spark, table).rdd.getNumPartitions()
    wide = {"id": list(range(10_000, 10_100)), "city": [f"{n}".zfill(6) * 6000 for n in range(100)]}
    table.insert(wide)
    ours = load(spark, table)
    # Four parts at least, of which the first goes with rows of files.
    assert ours.rdd.getNumPartitions() >= before + 3
    found = ours.where("id >= 10000").orderBy("id").collect()
    assert [row.id for row in found] == wide["id"]
    assert [row.city for row in found] == wide["city"]
    assert ours.count() == 3100

"""A join with a selective other side reads only the row groups and rows that have its keys."""

from __future__ import annotations

import decimal
import re
from typing import TYPE_CHECKING, NamedTuple

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from spark_tables import create_indexes, delete_by_vector, plan_of, rows, same_rows, write_delta, write_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

INDEXED = ("id", "k", "city", "price", "day", "at", "paid", "blob", "local", "short", "amount")


class Facts(NamedTuple):
    """A table as we read it and as Spark does."""

    folder: Path
    ours: DataFrame
    theirs: DataFrame


class Read(NamedTuple):
    """What the scan of a table read."""

    skipped: int
    row_groups: int
    rows: int


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 row groups of 100 rows; `k` is the number of the row group, and NULL in each ninth row."""
    folder = write_folder(tmp_path_factory.mktemp("runtime") / "facts")
    create_indexes(folder, *INDEXED)
    return folder


@pytest.fixture
def facts(spark: SparkSession, folder: Path) -> Facts:
    return Facts(folder, spark.read.format("lakemark").load(str(folder)), spark.read.parquet(str(folder)))


def dimension(spark: SparkSession, path: Path, **columns: object) -> DataFrame:
    """Its rows, chosen by a filter that Spark takes for selective.

    A file, since a filter of local rows is gone before anything is planned.
    """
    values = {name: pa.array(column) for name, column in columns.items()}
    length = len(next(iter(values.values())))
    table = pa.table({**values, "wanted": pa.array(["yes"] * length), "name": [f"n{n}" for n in range(length)]})
    pq.write_table(table, path)
    return spark.read.parquet(str(path)).where("wanted = 'yes'")


def scans(plan: object) -> Iterator[object]:
    """The scans of the plan that ran, with those of its stages."""
    name = plan.getClass().getSimpleName()  # type: ignore[attr-defined]
    if name == "AdaptiveSparkPlanExec":
        yield from scans(plan.executedPlan())  # type: ignore[attr-defined]
    elif "QueryStage" in name:
        yield from scans(plan.plan())  # type: ignore[attr-defined]
    elif name == "BatchScanExec":
        yield plan
    else:
        children = plan.children()  # type: ignore[attr-defined]
        for place in range(children.size()):
            yield from scans(children.apply(place))


def read(frame: DataFrame, table: Path) -> Read:
    """What the scan of the table read; the frame has been collected."""
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - plans are reached no other way
    (scan,) = (scan for scan in scans(plan) if f"lakemark {table} " in scan.scan().description())  # type: ignore[attr-defined]
    description = scan.scan().description()  # type: ignore[attr-defined]
    found = re.search(r"row groups skipped: (\d+) of (\d+)", description)
    assert found is not None, description
    metrics = scan.metrics()  # type: ignore[attr-defined]
    skipped = metrics.apply("rowGroupsSkipped").value()
    assert skipped == int(found[1])
    return Read(skipped, int(found[2]), metrics.apply("numOutputRows").value())


def matching(theirs: DataFrame, dim: DataFrame, on: str) -> int:
    """Rows with a key of the dimension."""
    return theirs.join(dim, on, "left_semi").count()


@pytest.mark.parametrize("how", ["inner", "left_semi"])
def test_a_join_reads_only_what_has_its_keys(spark: SparkSession, facts: Facts, tmp_path: Path, how: str) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 13, 23, 99, None], pa.int32()))
    joined = facts.ours.join(dim, "k", how)
    assert "dynamicpruning" in plan_of(joined)
    joined.collect()
    assert read(joined, facts.folder) == Read(27, 30, 267)
    assert same_rows(joined, facts.theirs.join(dim, "k", how))


@pytest.mark.parametrize("how", ["left_outer", "full_outer", "left_anti"])
def test_a_join_that_keeps_rows_without_a_partner_reads_all(
    spark: SparkSession, facts: Facts, tmp_path: Path, how: str
) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 13, None], pa.int32()))
    joined = facts.ours.join(dim, "k", how)
    joined.collect()
    # Of an anti join Spark knows that rows without a value stay.
    assert read(joined, facts.folder) == Read(0, 30, 3000)
    assert same_rows(joined, facts.theirs.join(dim, "k", how))


def test_the_dimension_may_be_the_left_side(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 13, 55, None], pa.int32()))
    joined = dim.hint("broadcast").join(facts.ours, "k")
    joined.collect()
    assert read(joined, facts.folder) == Read(28, 30, 178)
    assert same_rows(joined, dim.join(facts.theirs, "k"))


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        ("id", pa.array([5, 105, 2999, 5000], pa.int64())),
        ("short", pa.array([7, 299], pa.int16())),
        ("city", pa.array(["Wien", "nowhere", "", None])),
        ("price", pa.array([decimal.Decimal("0.07"), decimal.Decimal("4.99")], pa.decimal128(10, 2))),
        ("day", pa.array([19783, 19800], pa.int32()).cast(pa.date32())),
        ("at", pa.array([1704067260000000, 1], pa.int64()).cast(pa.timestamp("us", "UTC"))),
        ("local", pa.array([1704067260000000, 1], pa.int64()).cast(pa.timestamp("us"))),
        ("paid", pa.array([True])),
        ("blob", pa.array([b"\x03\xff", b""], pa.binary())),
    ],
)
def test_keys_of_every_type_that_means_the_same(
    spark: SparkSession, facts: Facts, tmp_path: Path, column: str, keys: pa.Array
) -> None:
    dim = dimension(spark, tmp_path / "d", **{column: keys})
    joined = facts.ours.join(dim, column)
    joined.collect()
    found = read(joined, facts.folder)
    assert found.rows == matching(facts.theirs, dim, column) > 0
    assert same_rows(joined, facts.theirs.join(dim, column))


def test_floats_and_columns_without_indexes_are_read_whole(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    # Rows without a value leave by a filter of their own, where there are indexes.
    for column, keys, expected in (
        ("amount", pa.array([9.25, float("nan")]), Read(0, 30, 2666)),
        ("tiny", pa.array([5], pa.int8()), Read(0, 0, 3000)),
    ):
        dim = dimension(spark, tmp_path / column, **{column: keys})
        joined = facts.ours.join(dim, column)
        joined.collect()
        assert read(joined, facts.folder) == expected
        assert same_rows(joined, facts.theirs.join(dim, column))


def test_keys_of_another_type_are_cast_and_stay_with_spark(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3], pa.int64()))
    joined = facts.ours.join(dim, "k")
    joined.collect()
    assert read(joined, facts.folder) == Read(0, 30, 2666)
    assert same_rows(joined, facts.theirs.join(dim, "k"))


def test_a_filter_and_several_joins_narrow_together(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    by_k = dimension(spark, tmp_path / "k", k=pa.array([3, 4, 5, 23], pa.int32())).select("k", "name")
    by_city = dimension(spark, tmp_path / "city", city=["Rom", "Oslo"]).select("city", "wanted")

    def joined(facts: DataFrame, condition: str) -> DataFrame:
        return facts.where(condition).join(by_k, "k").join(by_city, "city")

    # Row groups of which more than half is wanted are read as they were planned.
    for condition, expected in (
        ("id < 2000", Read(27, 30, 151)),
        ("id < 2000 AND amount > 100", Read(27, 30, 151)),
        ("amount > 100", Read(26, 30, 189)),
    ):
        frame = joined(facts.ours, condition)
        assert len(frame.collect()) == joined(facts.theirs, condition).count() > 0
        assert read(frame, facts.folder) == expected
        assert same_rows(frame, joined(facts.theirs, condition))


def test_an_empty_dimension_reads_nothing(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3], pa.int32())).where("name = 'nobody'")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        joined = facts.ours.join(dim, "k")
        assert joined.collect() == []
        assert read(joined, facts.folder) == Read(30, 30, 0)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert facts.ours.join(dim, "k").collect() == []


def test_null_safe_joins_keep_rows_without_a_key(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, None], pa.int32())).selectExpr("k AS dk", "name")
    joined = facts.ours.join(dim, facts.ours.k.eqNullSafe(dim.dk))
    assert joined.count() == 89 + 334
    assert same_rows(joined, facts.theirs.join(dim, facts.theirs.k.eqNullSafe(dim.dk)))


@pytest.mark.parametrize("how", ["inner", "left_semi", "right_outer"])
def test_joins_without_a_broadcast_ask_for_the_keys_if_spark_may(
    spark: SparkSession, facts: Facts, tmp_path: Path, how: str
) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 13, 55], pa.int32()))
    settings = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
        "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        joined = facts.ours.join(dim, "k", how)
        joined.collect()
        assert "SortMergeJoin" in plan_of(joined)
        assert read(joined, facts.folder) == Read(28, 30, 178)
        assert same_rows(joined, facts.theirs.join(dim, "k", how))
    finally:
        for key in settings:
            spark.conf.unset(key)


def test_two_indexed_tables(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d.parquet", k=pa.array([3, 13], pa.int32()))
    create_indexes(tmp_path, "wanted")
    indexed = spark.read.format("lakemark").load(str(tmp_path)).where("wanted = 'yes' AND length(name) > 0")
    joined = facts.ours.join(indexed, "k")
    joined.collect()
    assert read(joined, facts.folder) == Read(28, 30, 178)
    assert same_rows(joined, facts.theirs.join(dim, "k"))


def test_a_filter_that_indexes_answer_still_hands_keys_over(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dimension(spark, tmp_path / "d.parquet", k=pa.array([3, 13, 23], pa.int32()))
    create_indexes(tmp_path, "k", "name")
    indexed = spark.read.format("lakemark").load(str(tmp_path)).where("name IN ('n0', 'n2')")
    joined = facts.ours.join(indexed, "k")
    joined.collect()
    assert read(joined, facts.folder) == Read(28, 30, 178)
    assert same_rows(joined, facts.theirs.join(spark.read.parquet(str(tmp_path)).where("name IN ('n0', 'n2')"), "k"))
    # Apart from a join Spark is left no filter, and no file is read.
    counted = indexed.groupBy().count()
    assert "LocalTableScan" in plan_of(counted)
    assert counted.collect()[0][0] == 2
    below_an_aggregate = facts.ours.join(indexed.groupBy().count().withColumnRenamed("count", "k"), "k")
    assert "LocalTableScan" in plan_of(below_an_aggregate)


def test_what_a_correlated_subquery_reads_again_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    # Spark makes a join of the subquery when its scans are planned, and tests the column of the join for NULL then.
    (tmp_path / "d").mkdir()
    keys = [None if row % 9 == 0 else row % 100 for row in range(1000)]
    pq.write_table(pa.table({"k": keys, "v": range(1000)}), tmp_path / "f.parquet")
    states = [None if row == 50 else f"s{row % 5}" for row in range(100)]
    pq.write_table(pa.table({"id": range(100), "state": states}), tmp_path / "d" / "p.parquet")
    create_indexes(tmp_path / "d", "id", "state")
    spark.read.parquet(str(tmp_path / "f.parquet")).createOrReplaceTempView("sold")
    query = """
        WITH t AS (SELECT k, state, sum(v) AS total FROM sold JOIN places ON k = id GROUP BY k, state)
        SELECT k, state FROM t AS a WHERE total > (SELECT avg(total) FROM t AS b WHERE a.state = b.state)"""
    frames = {}
    for kind in ("lakemark", "parquet"):
        spark.read.format(kind).load(str(tmp_path / "d")).createOrReplaceTempView("places")
        frames[kind] = spark.sql(query)
        frames[kind].collect()
    plan = frames["lakemark"]._jdf.queryExecution().executedPlan()  # noqa: SLF001 - plans are reached no other way
    assert len(list(scans(plan))) == 1, plan.toString()
    assert same_rows(frames["lakemark"], frames["parquet"])


def test_equal_parts_of_a_plan_take_keys_alike_and_run_once(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d.parquet", k=pa.array([3, 13], pa.int32()), w=pa.array(["a", "b"]))
    part = facts.ours.join(dim.where("w > 'a'"), "k").groupBy("k").count()
    parts = part.union(part).union(part)
    parts.collect()
    plan = parts._jdf.queryExecution().executedPlan()  # noqa: SLF001 - plans are reached no other way
    assert len(list(scans(plan))) == 1, plan.toString()
    assert "dynamicpruning" in plan_of(parts)
    theirs = facts.theirs.join(dim.where("w > 'a'"), "k").groupBy("k").count()
    assert same_rows(parts, theirs.union(theirs).union(theirs))


@pytest.mark.parametrize("broadcast", ["10485760", "-1"], ids=["small", "large"])
def test_a_plan_grows_no_faster_than_its_joins(spark: SparkSession, tmp_path: Path, broadcast: str) -> None:
    # Of each scan that takes keys Spark copies the other side with all its copies.
    number = 12
    for table in range(number):
        folder = tmp_path / f"t{table}"
        folder.mkdir()
        pq.write_table(pa.table({f"k{table}": range(500), f"v{table}": range(500)}), folder / "p.parquet")
        create_indexes(folder, f"k{table}", f"v{table}")

    def joined(kind: str) -> DataFrame:
        first, *others = (spark.read.format(kind).load(str(tmp_path / f"t{table}")) for table in range(number))
        frame = first.where("length(CAST(v0 AS STRING)) = 2")
        for table, other in enumerate(others, 1):
            frame = frame.join(other, first.k0 + 0 == other[f"k{table}"])
        return frame

    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", broadcast)
    try:
        frame = joined("lakemark")
        plan = frame._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001 - plans are reached no other way
        copies = plan.count("dynamicpruning#")
        assert copies <= (number if broadcast != "-1" else 2**8)
        assert same_rows(frame, joined("parquet"))
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_indexes_that_are_switched_off_are_not_asked(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3], pa.int32()))
    off = spark.read.format("lakemark").option("use_index", "false").load(str(folder)).join(dim, "k")
    assert "dynamicpruning" not in plan_of(off)
    assert len(off.collect()) == 89


def test_rows_of_a_limit_are_chosen_before_the_join(spark: SparkSession, facts: Facts, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([0, 1], pa.int32()))
    joined = facts.ours.limit(100).join(dim, "k")
    assert joined.count() == facts.ours.limit(100).where("k IN (0, 1)").count()


def test_what_was_planned_is_read_although_the_table_grew(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k")
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 25], pa.int32()))
    joined = spark.read.format("lakemark").load(str(folder)).join(dim, "k")
    plan_of(joined)
    pq.write_table(rows(2000, 3000), folder / "part-2.parquet")
    create_indexes(folder)
    assert len(joined.collect()) == 89
    assert read(joined, folder) == Read(19, 20, 89)
    assert len(joined.where("true").collect()) == 89 + 89


def test_files_that_no_index_covers_are_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k")
    pq.write_table(rows(2000, 3000), folder / "part-2.parquet")
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 25], pa.int32()))
    joined = spark.read.format("lakemark").load(str(folder)).join(dim, "k")
    joined.collect()
    assert read(joined, folder) == Read(19, 20, 1089)
    assert same_rows(joined, spark.read.parquet(str(folder)).join(dim, "k"))


def test_damaged_indexes_change_no_row(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k")
    for path in sorted((folder / "_lakemark").rglob("*.lmx")):
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 0x40
        path.write_bytes(content)
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 15], pa.int32()))
    joined = spark.read.format("lakemark").load(str(folder)).join(dim, "k")
    assert same_rows(joined, spark.read.parquet(str(folder)).join(dim, "k"))


def test_a_table_that_was_closed_meanwhile_is_read_as_planned(
    spark: SparkSession, facts: Facts, tmp_path: Path
) -> None:
    dim = dimension(spark, tmp_path / "d", k=pa.array([3], pa.int32()))
    joined = facts.ours.join(dim, "k")
    plan_of(joined)
    others = [facts.ours.where(f"id > {number}").join(dim, "k") for number in range(64)]
    for other in others:
        plan_of(other)
    assert len(joined.collect()) == 89
    assert read(joined, facts.folder) == Read(0, 30, 2666)
    others[-1].collect()
    assert read(others[-1], facts.folder) == Read(29, 30, 89)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200,000 rows in 20 row groups with a key in no order."""
    folder = tmp_path_factory.mktemp("large") / "t"
    folder.mkdir()
    ids = pa.array([n * 7_919 % 200_003 for n in range(200_000)], pa.int64())
    table = pa.table({"id": ids, "v": pa.array(range(200_000), pa.int64()), "s": [f"s{n}" for n in range(200_000)]})
    pq.write_table(table, folder / "p.parquet", row_group_size=10_000)
    indexed = lakemark.Table(folder)
    indexed.create_index("id", using="key", build=False)
    indexed.build(progress=False)
    return folder


def test_many_thousands_of_keys_are_one_search(spark: SparkSession, large: Path, tmp_path: Path) -> None:
    dim = dimension(spark, tmp_path / "d", id=pa.array(range(0, 200_000, 10), pa.int64())).select("id")
    facts = spark.read.format("lakemark").load(str(large))
    joined = facts.join(dim, "id")
    assert len(joined.collect()) == spark.read.parquet(str(large)).join(dim, "id").count() > 19_000
    found = read(joined, large)
    # Either the rows with these keys or, where the indexes say that it is cheaper, all of them.
    assert found.rows in (len(joined.collect()), 200_000)
    few = dimension(spark, tmp_path / "few", id=pa.array(range(0, 200_000, 2_000), pa.int64())).select("id")
    joined = facts.join(few, "id")
    assert len(joined.collect()) == read(joined, large).rows == spark.read.parquet(str(large)).join(few, "id").count()


def test_more_keys_than_rows_are_not_searched(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array(range(500), pa.int64())}), folder / "p.parquet")
    create_indexes(folder, "id")
    # Keys that follow each other would be one range.
    dim = dimension(spark, tmp_path / "d", id=pa.array(range(0, 25_000, 5), pa.int64()))
    joined = spark.read.format("lakemark").load(str(folder)).join(dim.hint("broadcast"), "id")
    assert len(joined.collect()) == 100
    assert "id: scan_is_cheaper" in plan_of(joined)


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "in a run"])
def test_buffered_rows_are_joined_too(spark: SparkSession, tmp_path: Path, flushed: bool) -> None:
    folder = write_folder(tmp_path / "t")
    create_indexes(folder, "k", "city")
    table = lakemark.Table(folder, key="id")
    table.upsert(rows(350, 360).set_column(1, "k", pa.array([13] * 10, pa.int32())))
    table.upsert(rows(5000, 5020).set_column(1, "k", pa.array([3, 50] * 10, pa.int32())))
    table.delete(pa.table({"id": pa.array([1301, 1302], pa.int64())}))
    if flushed:
        table.flush()
    pq.write_table(pa.table(table.scan()), tmp_path / "expected.parquet")
    dim = dimension(spark, tmp_path / "d", k=pa.array([3, 13], pa.int32()))
    for condition in ("true", "city IN ('Rom', 'Wien')", "amount > 50"):
        joined = spark.read.format("lakemark").load(str(folder)).where(condition).join(dim, "k")
        vanilla = spark.read.parquet(str(tmp_path / "expected.parquet")).where(condition).join(dim, "k")
        joined.collect()
        assert same_rows(joined, vanilla)
        if condition == "true":
            found = read(joined, folder)
            assert (found.skipped, found.row_groups) == (28, 30)
            assert found.rows == vanilla.count()


def test_rows_of_a_deletion_vector_stay_hidden(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_delta(folder)
    delete_by_vector(folder, 2023, [0, 3, 5, 77])
    create_indexes(folder, "kind")
    alive = deltalake.DeltaTable(folder)
    assert alive.version() == 2
    facts = spark.read.format("lakemark").load(str(folder))
    # Hidden are the ids 0, 3, 5 and 77 of the 100 of 2023.
    for column, keys, expected in (
        ("kind", pa.array(["k0", "k3"]), 100 - 3),
        ("id", pa.array([0, 1, 3, 200], pa.int64()), 2),
    ):
        joined = facts.join(dimension(spark, tmp_path / column, **{column: keys}), column)
        assert len(joined.collect()) == expected, column
    joined = facts.join(dimension(spark, tmp_path / "last", year=pa.array([2023], pa.int32())), "year")
    assert len(joined.collect()) == 96
    assert read(joined, folder).rows == 96


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path) -> Path:
    """A table with a key, and a view `source` of ids and names that a filter chose."""
    folder = write_folder(tmp_path / "t")
    create_indexes(folder, "k")
    lakemark.Table(folder, key="id")
    dim = dimension(spark, tmp_path / "d", id=pa.array([5, 105, 1500, 2999, 7000], pa.int64()))
    dim.createOrReplaceTempView("source")
    return folder


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            (
                "MERGE INTO {} t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET city = s.name "
                "WHEN NOT MATCHED THEN INSERT (id, city) VALUES (s.id, s.name)"
            ),
            {5: "n0", 105: "n1", 1500: "n2", 2999: "n3", 7000: "n4"},
        ),
        (
            (
                "MERGE INTO {} t USING source s ON t.id = s.id AND t.k < 20 WHEN MATCHED AND s.name = 'n1' THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET id = t.id + 8000, city = s.name"
            ),
            {8005: "n0", 9500: "n2"},
        ),
        (
            "UPDATE {} SET city = 'found' WHERE id IN (SELECT id FROM source)",
            dict.fromkeys((5, 105, 1500, 2999), "found"),
        ),
        ("DELETE FROM {} WHERE id IN (SELECT id FROM source) OR k = 99", {}),
        ("UPDATE {} SET city = 'all' WHERE length(city) > 100 OR id = 5", {5: "all"}),
    ],
)
def test_statements_with_a_selective_source_change_just_its_rows(
    spark: SparkSession, changed: Path, statement: str, expected: dict[int, str]
) -> None:
    before = {row.id: row.city for row in spark.read.parquet(str(changed)).select("id", "city").collect()}
    spark.sql(statement.format(f"lm.`{changed}`"))
    after = {
        row.id: row.city for row in spark.read.format("lakemark").load(str(changed)).select("id", "city").collect()
    }
    assert {key: city for key, city in after.items() if before.get(key, "") != city} == expected
    gone = set(before) - set(after)
    if "DELETE FROM" in statement:
        assert gone == {5, 105, 1500, 2999}
    else:
        assert gone == ({5, 105, 1500} if "8000" in statement else set())

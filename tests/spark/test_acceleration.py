"""Existing Spark code, unchanged: Spark's own scans of Parquet use indexes, and give the same rows as without."""

from __future__ import annotations

import shutil
import warnings
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import LongType, StructField, StructType

import lakemark
import test_corpus
from corpus import cases
from file_scans import collected, logged, read_of, settings, skipped, without_numbers
from scattered import ALL_ROWS, FILE_ROWS, FILES, GROUP_ROWS, GROUPS, write_scattered
from spark_tables import create_indexes, plan_of, rows, write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def scattered_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_scattered(tmp_path_factory.mktemp("scattered") / "t")
    create_indexes(folder, "k", "name")
    return folder


@pytest.fixture(scope="module")
def typed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("typed") / "t")
    create_indexes(folder, *(name for name in rows(0, 1).column_names if name not in ("tags", "place")))
    return folder


def test_a_lookup_reads_one_row_group_of_one_file(
    spark: SparkSession, fast: SparkSession, scattered_folder: Path
) -> None:
    ours, theirs = (session.read.parquet(str(scattered_folder)).where("k = 1237") for session in (fast, spark))
    assert collected(ours) == collected(theirs) == ["Row(id=1, k=1237, name='n01237', part=0)"]
    assert read_of(theirs) == (ALL_ROWS, FILES)
    assert read_of(ours) == (GROUP_ROWS, 1)
    assert skipped(ours) == (FILES * GROUPS - 1, FILES * GROUPS)
    assert skipped(theirs) is None


@pytest.mark.parametrize(
    ("condition", "groups"),
    [
        ("name = 'n01237' OR name = 'n00000'", 1),
        ("k IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", 12),
        ("k < 0", 0),
        ("k IS NULL", 0),
        ("name LIKE 'n0000%'", 10),
        ("NOT (k > 0)", 1),
        ("k <=> 1237", 1),
        # What nobody can translate only fails to narrow.
        ("k = 1237 AND length(name) > 3", 1),
        ("(k = 1237 AND length(name) > 3) OR (k = 0 AND id % 2 = 0)", 1),
        ("k = 1237 OR length(name) = 3", FILES * GROUPS),
        ("k + 1 = 1238", FILES * GROUPS),
        ("part = 1", FILES * GROUPS),
    ],
)
def test_row_groups_that_the_indexes_leave_are_read(
    spark: SparkSession, fast: SparkSession, scattered_folder: Path, condition: str, groups: int
) -> None:
    # Opening costs nothing, so that no row group is read along.
    with settings((spark, fast), {"spark.sql.files.openCostInBytes": "0", "spark.sql.parquet.filterPushdown": "false"}):
        ours, theirs = (session.read.parquet(str(scattered_folder)).where(condition) for session in (fast, spark))
        assert collected(ours) == collected(theirs)
        assert read_of(ours)[0] == groups * GROUP_ROWS


def test_row_groups_in_small_gaps_are_read_along(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_scattered(tmp_path / "t", files=1)
    create_indexes(folder, "k")
    # In the third and the seventh row group.
    condition = f"k IN ({250 * 1237 % ALL_ROWS}, {650 * 1237 % ALL_ROWS})"
    ours, theirs = (session.read.parquet(str(folder)).where(condition) for session in (fast, spark))
    assert collected(ours) == collected(theirs)
    assert skipped(ours) == (8, 10)
    assert read_of(ours) == (5 * GROUP_ROWS, 1)


# The whole corpus is asked of the connector, whose translation of predicates this is; here some of them tell.
@pytest.mark.parametrize(("state", "every"), [("stale", 3), ("buffered", 4)])
def test_the_corpus(spark: SparkSession, fast: SparkSession, tmp_path: Path, state: str, every: int) -> None:
    source = cases.portable_source(tmp_path / "source")
    asked = [case for case in cases.CASES if case.columns <= set(source.columns) and "spark" not in case.differs]
    asked = asked[::every]
    assert len(asked) > 400 // every
    folder = test_corpus.indexed(state, source, tmp_path / state)
    ours = test_corpus.answers(fast.read.parquet(str(folder)), asked)
    assert ours == test_corpus.answers(spark.read.parquet(str(folder)), asked)
    assert skipped(fast.read.parquet(str(folder)).where("id = 1")) is not None


CONDITIONS = (
    "id = 1234",
    "k = 7 AND city = 'Rom'",
    "k IS NULL OR id < 50",
    "city LIKE 'Z%' AND id > 2000",
    "price = 1.25",
    "day = DATE '2024-02-03' AND id < 1000",
    "at >= TIMESTAMP '2024-01-01 08:00:00' AND k = 5",
    "local = TIMESTAMP_NTZ '2024-01-01 00:30:00'",
    "paid AND k = 12",
    "tiny = 3 AND short = 28",
    "blob = X'03FF' AND k = 20",
    "place.x = 77",
    "place.seen AND k = 3",
    "tags[0] = 't1' AND id BETWEEN 300 AND 310",
    "amount > 250 AND k = 4",
    "ID = 17 AND K IS NULL",
)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"spark.sql.parquet.enableVectorizedReader": "false"},
        {"spark.sql.files.maxPartitionBytes": "3000", "spark.sql.files.openCostInBytes": "0"},
        {
            "spark.sql.files.maxPartitionBytes": "50000",
            "spark.sql.files.openCostInBytes": "0",
            "spark.sql.parquet.enableVectorizedReader": "false",
        },
        {"spark.sql.ansi.enabled": "false"},
        {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"},
        {"spark.sql.columnVector.offheap.enabled": "true", "spark.sql.files.openCostInBytes": "0"},
        {"spark.sql.session.timeZone": "Pacific/Auckland"},
    ],
    ids=["default", "rows", "splits", "splits-rows", "not-ansi", "interpreted", "off-heap", "zone"],
)
def test_rows_of_every_type_and_reader(
    spark: SparkSession, fast: SparkSession, typed_folder: Path, values: dict[str, str]
) -> None:
    with settings((spark, fast), values):
        ours, theirs = (asked_together(session.read.parquet(str(typed_folder))) for session in (fast, spark))
        assert collected(ours) == collected(theirs)
        assert read_of(ours)[1] < read_of(theirs)[1]
        lookup = fast.read.parquet(str(typed_folder)).where("id = 1234")
        assert lookup.select("k").collect() == [(12,)]
        assert skipped(lookup) == (29, 30)


def asked_together(table: DataFrame) -> DataFrame:
    """The rows of each condition, each by a scan of its own."""
    frames = [
        table.where(condition).select(F.lit(condition).alias("asked"), "*", "_metadata.row_index")
        for condition in CONDITIONS
    ]
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionAll(frame)
    return union


QUERIES = (
    "SELECT count(*), sum(k) FROM t WHERE k < 10",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.k = b.k WHERE a.k = 1237",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.k WHERE a.k < 3 AND b.name > 'n01000'",
    "SELECT * FROM t WHERE k = (SELECT max(k) FROM t WHERE k < 9)",
    "SELECT * FROM t WHERE id IN (SELECT k FROM t WHERE name = 'n00007')",
    "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM t y WHERE y.k = x.id AND y.k = 11)",
    "SELECT (SELECT count(*) FROM t WHERE k = 3), (SELECT count(*) FROM t WHERE k > 2995)",
    "SELECT id FROM t WHERE k = 5 UNION ALL SELECT id FROM t WHERE k = 6",
    "SELECT part, count(*) AS n FROM t WHERE k BETWEEN 10 AND 20 GROUP BY part ORDER BY part",
    "SELECT * FROM t WHERE k > 2989 ORDER BY k LIMIT 7",
    "SELECT DISTINCT part FROM (SELECT part, row_number() OVER (PARTITION BY part ORDER BY k) AS r FROM t WHERE k < 9)",
    "WITH few AS (SELECT * FROM t WHERE k < 9) SELECT x.id, y.id FROM few x LEFT JOIN few y ON x.id = y.id + 1",
)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_joins_subqueries_and_the_rest_of_sql(
    spark: SparkSession, fast: SparkSession, scattered_folder: Path, adaptive: str
) -> None:
    with settings((spark, fast), {"spark.sql.adaptive.enabled": adaptive}):
        for session in (fast, spark):
            session.read.parquet(str(scattered_folder)).createOrReplaceTempView("t")
        for query in QUERIES:
            ours, theirs = fast.sql(query), spark.sql(query)
            assert collected(ours) == collected(theirs), query
            assert plan_of(ours).count("ReusedExchange") == plan_of(theirs).count("ReusedExchange")
            assert "skipped by the index" in plan_of(ours), query


def test_a_running_query_asks_the_indexes_once(
    spark: SparkSession, fast: SparkSession, scattered_folder: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [1, 2], name: [1, 2]}), tmp_path / f"{name}.parquet")
        fast.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    fast.read.parquet(str(scattered_folder)).createOrReplaceTempView("t")
    joined = "SELECT t.id FROM t JOIN a ON t.id = a.id JOIN b ON t.id = b.id WHERE k < 2000 AND a < 3 AND b < 3"
    with logged(spark) as lines:
        # Both dimensions are broadcast, after each of which the rest is planned anew.
        assert sorted(fast.sql(joined).collect()) == [(1,)]
    assert sum("rule out" in line for line in lines()) == 1


def test_cached_data(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_scattered(tmp_path / "t")
    create_indexes(folder, "k")
    table = fast.read.parquet(str(folder)).cache()
    assert table.where("k = 1237").collect() == spark.read.parquet(str(folder)).where("k = 1237").collect()
    assert "InMemoryTableScan" in plan_of(table.where("k = 1237"))
    table.unpersist(blocking=True)
    few = fast.read.parquet(str(folder)).where("k < 5").cache()
    assert few.count() == 5
    assert few.where("k = 3").count() == 1
    few.unpersist(blocking=True)


@pytest.mark.parametrize("split", ["128MB", "4000"])
def test_where_rows_come_from(spark: SparkSession, fast: SparkSession, scattered_folder: Path, split: str) -> None:
    with settings((spark, fast), {"spark.sql.files.maxPartitionBytes": split, "spark.sql.files.openCostInBytes": "0"}):
        frames = [
            session.read.parquet(str(scattered_folder))
            .where("k IN (1237, 0, 5, 77, 2000, 2001)")
            .selectExpr(
                "k",
                "_metadata.file_path AS path",
                "_metadata.file_name AS name",
                "_metadata.file_size AS size",
                "_metadata.row_index AS row",
                "_metadata.file_block_start AS start",
                "_metadata.file_block_length AS length",
                "_metadata.file_modification_time AS modified",
                "input_file_name() AS input",
                "input_file_block_start() AS block",
            )
            for session in (fast, spark)
        ]
        ours, theirs = frames
        same = ["k", "path", "name", "size", "row", "modified", "input"]
        assert collected(ours.select(same)) == collected(theirs.select(same))
        for found in ours.collect():
            part = int(found.name[5])
            assert found.k == (part * FILE_ROWS + found.row) * 1237 % ALL_ROWS
            assert found.start == found.block
            assert 0 <= found.start < found.start + found.length <= found.size
            if split == "4000":
                assert found.length <= 4000
        by_place = "_metadata.row_index = 5 AND _metadata.file_name = 'part-1.parquet' AND k < 3000"
        kept = [session.read.parquet(str(scattered_folder)).where(by_place) for session in (fast, spark)]
        assert collected(kept[0]) == collected(kept[1])
        assert len(collected(kept[0])) == 1


def test_functions_of_users(spark: SparkSession, fast: SparkSession, scattered_folder: Path) -> None:
    found = []
    for session in (fast, spark):
        is_even = F.udf(lambda n: n % 2 == 0, "boolean")
        frame = session.read.parquet(str(scattered_folder))
        found.append(collected(frame.where((F.col("k") < 10) & is_even("id") & (F.rand(5) < 2))))
    assert found[0] == found[1]
    assert found[0]


def test_tables_without_indexes_have_the_plans_of_spark(
    spark: SparkSession, fast: SparkSession, tmp_path: Path, scattered_folder: Path
) -> None:
    folder = str(write_folder(tmp_path / "t", files=1))
    for condition in ("id = 5", "id > 5 AND city = 'Rom'", "true"):
        ours, theirs = (session.read.parquet(folder).where(condition).groupBy("k").count() for session in (fast, spark))
        assert without_numbers(ours) == without_numbers(theirs)
    # As where indexes have nothing to say.
    for condition in ("id = 5", "k + 1 = 5", "true", "k >= 0"):
        ours, theirs = (session.read.parquet(str(scattered_folder)).where(condition) for session in (fast, spark))
        assert without_numbers(ours) == without_numbers(theirs)


def test_indexes_in_another_place(fast: SparkSession, tmp_path: Path) -> None:
    folder = write_scattered(tmp_path / "t")
    table = lakemark.Table(folder, store=tmp_path / "store")
    table.create_index("k", using="bitmap")
    query = fast.read.parquet(str(folder)).where("k = 1237")
    assert skipped(query) is None
    for name in (folder, f"file:{folder}"):
        with settings((fast,), {f"spark.lakemark.store.{name}": str(tmp_path / "store")}):
            found = fast.read.parquet(str(folder)).where("k = 1237")
            assert skipped(found) == (29, 30)
            assert [row.id for row in found.collect()] == [1]


def test_whatever_fails_is_told_once_and_leaves_sparks_plan(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_scattered(tmp_path / "t")
    with settings((fast,), {f"spark.lakemark.store.{folder}": "nowhere://at/all"}), logged(spark) as lines:
        for _ in range(2):
            ours, theirs = (session.read.parquet(str(folder)).where("k = 5") for session in (fast, spark))
            assert collected(ours) == collected(theirs)
            assert without_numbers(ours) == without_numbers(theirs)
    told = [line for line in lines() if "not used for a scan" in line]
    assert len(told) == 1
    # Buffered changes without a manifest are an error for Lakemark, and none for Spark.
    create_indexes(folder, "k")
    lakemark.Table(folder, key="id").delete([5])
    shutil.rmtree(folder / "_lakemark" / "manifest")
    assert fast.read.parquet(str(folder)).where("k = 1237").count() == 1


def test_moments_that_spark_changes_are_not_asked_about(
    spark: SparkSession, fast: SparkSession, typed_folder: Path
) -> None:
    asked = "day = DATE '2024-02-03' AND id < 1000"
    narrow = "day = DATE '1500-02-03'"
    assert skipped(fast.read.parquet(str(typed_folder)).where(narrow)) == (30, 30)
    with settings((spark, fast), {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"}):
        ours, theirs = (session.read.parquet(str(typed_folder)).where(asked) for session in (fast, spark))
        assert collected(ours) == collected(theirs)
        assert skipped(ours) == (20, 30)
        assert skipped(fast.read.parquet(str(typed_folder)).where(narrow)) is None


def test_the_extension_is_off_unless_asked_for(spark: SparkSession, scattered_folder: Path) -> None:
    assert spark.conf.get("spark.sql.extensions") == "io.lakemark.spark.extension.LakemarkExtension"
    assert skipped(spark.read.parquet(str(scattered_folder)).where("k = 1237")) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = spark.newSession()
        session.conf.set("spark.lakemark.use_index", "true")
    assert skipped(session.read.parquet(str(scattered_folder)).where("k = 1237")) == (29, 30)
    # Spark then finds columns by their numbers, if they have any.
    by_number = StructType([StructField("k", LongType(), metadata={"parquet.field.id": 2})])
    with settings((session,), {"spark.sql.parquet.fieldId.read.enabled": "true"}):
        assert skipped(session.read.schema(by_number).parquet(str(scattered_folder)).where("k = 1237")) is None
        lookup = session.read.parquet(str(scattered_folder)).where("k = 1237")
        assert skipped(lookup) == (29, 30)
        assert [row.id for row in lookup.collect()] == [1]

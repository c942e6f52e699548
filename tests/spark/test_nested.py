"""Structs, lists and maps: only the fields that are needed are read; indexes of fields answer like those of columns."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, NamedTuple

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from spark_tables import create_indexes, is_counted, plan_of, same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

FILES, FILE_ROWS, GROUP_ROWS = 3, 1_000, 100

POINT = pa.struct([("x", pa.int32()), ("y", pa.float64())])
PLACE = pa.struct(
    [
        ("city", pa.string()),
        ("point", POINT),
        ("seen", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(8, 2)),
    ]
)
TAG = pa.struct([("name", pa.string()), ("by", pa.int64()), ("weight", pa.float32())])
NOTE = pa.struct([("text", pa.string()), ("at", pa.date32())])
DEEP = pa.struct([("items", pa.list_(pa.struct([("a", pa.int16()), ("b", pa.list_(TAG))])))])
INDEXED = ("place.city", "place.point.x", "place.seen", "place.at", "place.price", "few")


def place(n: int) -> dict[str, object] | None:
    """A struct that is NULL, has a struct that is NULL, or fields that are."""
    if n % 13 == 0:
        return None
    start = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    return {
        "city": None if n % 7 == 0 else ("Oslo", "Rom", "Wien", "Zürich")[n % 4],
        "point": None if n % 5 == 0 else {"x": n // 100, "y": n / 8},
        "seen": None if n % 11 == 0 else n % 2 == 0,
        "at": start + dt.timedelta(hours=n % 50),
        "price": decimal.Decimal(n % 300) / 100,
    }


def tag(n: int) -> dict[str, object]:
    return {"name": f"t{n % 9}", "by": n, "weight": n / 4}


def rows(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "few": pa.array([n % 3 for n in ids], pa.int32()),
            "place": pa.array([place(n) for n in ids], PLACE),
            "tags": pa.array(
                [None if n % 6 == 0 else [None if at == 2 else tag(n + at) for at in range(n % 4)] for n in ids],
                pa.list_(TAG),
            ),
            "notes": pa.array(
                [
                    None
                    if n % 10 == 0
                    else [(f"k{at}", {"text": f"n{n}", "at": dt.date(2024, 1, 1 + at)}) for at in range(n % 3)]
                    for n in ids
                ],
                pa.map_(pa.string(), NOTE),
            ),
            "deep": pa.array(
                [None if n % 8 == 0 else {"items": [{"a": n % 100, "b": [tag(n), None]}, None]} for n in ids], DEEP
            ),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nested") / "t"
    folder.mkdir()
    for part in range(FILES):
        table = rows(part * FILE_ROWS, (part + 1) * FILE_ROWS)
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=GROUP_ROWS, write_page_index=True)
    create_indexes(folder, *INDEXED)
    return folder


class Both(NamedTuple):
    """The same files, read by us and by Spark."""

    ours: DataFrame
    theirs: DataFrame


@pytest.fixture
def both(spark: SparkSession, folder: Path) -> Both:
    return Both(spark.read.format("lakemark").load(str(folder)), spark.read.parquet(str(folder)))


def collected(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def asked(frame: DataFrame, query: str) -> DataFrame:
    """A query of the view `t`, which is this frame."""
    frame.createOrReplaceTempView("t")
    return frame.sparkSession.sql(query)


def read_schema(frame: DataFrame) -> str:
    """What the only scan of a plan reads, as Spark writes types."""
    (scan,) = leaves(frame._jdf.queryExecution().sparkPlan())  # noqa: SLF001 - PySpark gives plans no other way
    return str(scan.scan().readSchema().simpleString())


def leaves(plan: JavaObject) -> list[JavaObject]:
    found = plan.collectLeaves()
    return [found.apply(place) for place in range(found.size())]


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT place.city FROM t", "struct<place:struct<city:string>>"),
        ("SELECT id, place.point.y FROM t", "struct<id:bigint,place:struct<point:struct<y:double>>>"),
        ("SELECT place.point.x, place.seen FROM t", "struct<place:struct<point:struct<x:int>,seen:boolean>>"),
        ("SELECT place FROM t WHERE id > 17", None),
        ("SELECT tags.name FROM t", "struct<tags:array<struct<name:string>>>"),
        ("SELECT id, tags.weight FROM t", "struct<id:bigint,tags:array<struct<weight:float>>>"),
        ("SELECT notes['k1'].at FROM t", "struct<notes:map<string,struct<at:date>>>"),
        ("SELECT map_values(notes).text FROM t", "struct<notes:map<string,struct<text:string>>>"),
        ("SELECT deep.items.b FROM t", None),
        ("SELECT deep.items.a FROM t", "struct<deep:struct<items:array<struct<a:smallint>>>>"),
        ("SELECT id FROM t WHERE place.point.y > 100", "struct<id:bigint,place:struct<point:struct<y:double>>>"),
        ("SELECT id, place.seen FROM t WHERE place IS NULL", None),
        ("SELECT place.city FROM t WHERE place IS NOT NULL", None),
        ("SELECT sum(place.point.y) FROM t", "struct<place:struct<point:struct<y:double>>>"),
        ("SELECT explode(tags.by) FROM t", "struct<tags:array<struct<by:bigint>>>"),
    ],
)
def test_only_the_fields_that_a_query_needs_are_read(both: Both, query: str, read: str | None) -> None:
    ours, theirs = (asked(frame, query) for frame in both)
    if read is not None:
        assert read_schema(ours) == read
    assert collected(ours) == collected(theirs)


CONDITIONS = (
    "place.city = 'Rom'",
    "place.city IN ('Oslo', 'Wien', NULL)",
    "place.city LIKE 'Z%'",
    "place.city IS NULL",
    "place.city <=> 'Oslo'",
    "NOT (place.city = 'Rom')",
    "place.point.x BETWEEN 7 AND 9",
    "place.point.x IS NOT NULL AND few = 1",
    "place.seen",
    "NOT place.seen OR place.point.x < 3",
    "place.at >= TIMESTAMP '2024-01-02 12:00:00 UTC'",
    "place.price = 1.25BD AND place.city <> 'Oslo'",
)
LEFT = (
    "place.point.y < 12.5",
    "place.city = 'Rom' AND place.point.y < 12.5",
    "place.city = CAST(few AS STRING)",
    "length(place.city) = 3",
    "get(tags, 0).name = 't1'",
    "notes['k1'].text = 'n17'",
    "place IS NULL",
)


@pytest.mark.parametrize("condition", [*CONDITIONS, *LEFT])
def test_conditions_on_fields_choose_sparks_rows(both: Both, condition: str) -> None:
    ours, theirs = both.ours.where(condition), both.theirs.where(condition)
    assert is_counted(ours) == (condition in CONDITIONS)
    assert ours.count() == theirs.count()
    assert collected(ours) == collected(theirs)


def test_row_groups_without_such_a_field_are_skipped(both: Both) -> None:
    (scan,) = lakemark.spark.explain(both.ours.where("place.point.x = 7 AND place.point.y > 0").select("id")).scans
    assert scan.index_report is not None
    assert (scan.index_report.row_groups_total, scan.index_report.row_groups_pruned) == (30, 29)
    assert "place.point.x" in plan_of(both.ours.where("place.point.x = 7"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT place.city, count(*) FROM t GROUP BY place.city",
        "SELECT place.city AS c, count(*) FROM t WHERE few = 1 GROUP BY 1",
        "SELECT min(place.point.x), max(place.point.x), count(place.point.x) FROM t",
        "SELECT sum(place.point.x), avg(place.point.x) FROM t",
        "SELECT max(place.at), min(place.price), count(DISTINCT place.city) FROM t WHERE place.seen",
        "SELECT few, place.city, count(*) FROM t GROUP BY few, place.city",
        "SELECT DISTINCT place.point.x FROM t",
    ],
)
def test_aggregates_of_fields_are_there_before_anything_runs(both: Both, query: str) -> None:
    ours, theirs = (asked(frame, query) for frame in both)
    assert "BatchScan" not in plan_of(ours)
    assert collected(ours) == collected(theirs)


def test_the_first_rows_by_a_field(both: Both) -> None:
    for order in ("place.price DESC", "place.at NULLS LAST", "place.point.x"):
        ours, theirs = (asked(frame, f"SELECT id FROM t ORDER BY {order}, id LIMIT 20") for frame in both)
        assert ours.collect() == theirs.collect(), order


def test_changes_by_conditions_on_fields(spark: SparkSession, tmp_path: Path) -> None:
    """Buffered rows are asked about their fields, and lose those that nobody reads."""
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(rows(0, FILE_ROWS), folder / "a.parquet", row_group_size=GROUP_ROWS)
    expected = spark.read.parquet(str(folder))
    table = lakemark.Table(folder, key="id")
    create_indexes(folder, *INDEXED)
    spark.sql(f"DELETE FROM lm.`{folder}` WHERE place.city = 'Rom' AND place.point.x < 5")
    expected = expected.where("NOT coalesce(place.city = 'Rom' AND place.point.x < 5, false)")
    spark.sql(f"UPDATE lm.`{folder}` SET place.city = 'Bern', few = 7 WHERE place.seen AND few = 1")
    changed = "coalesce(place.seen AND few = 1, false)"
    expected = expected.selectExpr(
        "id",
        f"IF({changed}, 7, few) AS few",
        f"IF({changed}, named_struct('city', 'Bern', 'point', place.point, 'seen', place.seen, 'at', place.at, "
        "'price', place.price), place) AS place",
        "tags",
        "notes",
        "deep",
    )
    for step in (lambda: None, table.flush, lambda: table.migrate(progress=False)):
        step()
        ours = spark.read.format("lakemark").load(str(folder))
        assert same_but_maps(ours, expected)
        for condition in ("place.city = 'Bern'", "place.city = 'Wien'", "place.point.x = 3", "place.seen", "few = 7"):
            assert is_counted(ours.where(condition)), condition
            assert ours.where(condition).count() == expected.where(condition).count(), condition
            narrow = ours.where(condition).selectExpr("id", "place.point.y", "tags.by", "notes['k1'].text AS note")
            assert same_rows(
                narrow,
                expected.where(condition).selectExpr("id", "place.point.y", "tags.by", "notes['k1'].text AS note"),
            )
        grouped = ours.groupBy("place.city").count()
        assert "BatchScan" not in plan_of(grouped)
        assert same_rows(grouped, expected.groupBy("place.city").count())


def same_but_maps(left: DataFrame, right: DataFrame) -> bool:
    """Spark compares no maps."""
    return same_rows(*(frame.withColumn("notes", frame["notes"].cast("string")) for frame in (left, right)))


def test_structs_that_grew_are_read_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Older files of a Delta table lack fields, also of structs in lists, and have others in another order."""
    folder = tmp_path / "t"

    def write(ids: list[int], fields: list[str]) -> None:
        item = pa.struct([(name, pa.int64()) for name in fields])
        values = [{name: n * 10 + place for place, name in enumerate("abc") if name in fields} for n in ids]
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "s": pa.array([None if n % 4 == 3 else value for n, value in zip(ids, values, strict=True)], item),
                "l": pa.array([[value] * (n % 3) for n, value in zip(ids, values, strict=True)], pa.list_(item)),
            }
        )
        deltalake.write_deltalake(folder, table, mode="append", schema_mode="merge")

    write([0, 1, 2, 3], ["a"])
    write([4, 5, 6, 7], ["a", "b"])
    write([8, 9, 10, 11], ["a", "b", "c"])
    ours = spark.read.format("lakemark").load(str(folder))

    def value(n: int, name: str) -> int | None:
        since = {"a": 0, "b": 4, "c": 8}
        return None if n % 4 == 3 or n < since[name] else n * 10 + "abc".index(name)

    for name in "abc":
        found = {row["id"]: row[name] for row in ours.selectExpr("id", f"s.{name}").collect()}
        assert found == {n: value(n, name) for n in range(12)}
        found = {row["id"]: row[name] for row in ours.selectExpr("id", f"l.{name}").collect()}
        assert found == {
            n: [None if n < {"a": 0, "b": 4, "c": 8}[name] else n * 10 + "abc".index(name)] * (n % 3) for n in range(12)
        }
    assert {row["id"] for row in ours.where("s IS NULL").collect()} == {3, 7, 11}
    whole = {row["id"]: row["s"] for row in ours.collect()}
    assert whole == {n: None if n % 4 == 3 else tuple(value(n, name) for name in "abc") for n in range(12)}
    create_indexes(folder, "s.a", "s.b", "s.c")
    for condition, count in (("s.a >= 50", 5), ("s.b IS NULL", 6), ("s.c IS NOT NULL", 3), ("s.c = 92", 1)):
        assert ours.where(condition).count() == count, condition


def test_a_struct_of_which_a_file_has_no_needed_field(spark: SparkSession, tmp_path: Path) -> None:
    """Another field tells where the struct is NULL, be it a map."""
    folder = tmp_path / "t"
    maps = pa.map_(pa.string(), pa.int64())

    def write(ids: list[int], fields: dict[str, tuple[pa.DataType, object]]) -> None:
        of = pa.struct([(name, kind) for name, (kind, _) in fields.items()])
        value = {name: one for name, (_, one) in fields.items()}
        structs = [None if n % 3 == 0 else value for n in ids]
        lists = [None if n % 3 == 0 else [value] * 2 for n in ids]
        table = pa.table(
            {"id": pa.array(ids, pa.int64()), "s": pa.array(structs, of), "l": pa.array(lists, pa.list_(of))}
        )
        deltalake.write_deltalake(folder, table, mode="append", schema_mode="merge")

    write([0, 1, 2, 3], {"props": (maps, [("a", 1)])})
    write([4, 5, 6, 7], {"props": (maps, [("a", 1)]), "city": (pa.string(), "Rom")})
    ours = spark.read.format("lakemark").load(str(folder))
    assert collected(ours.where("s IS NOT NULL").selectExpr("id", "s.city")) == [
        "Row(id=1, city=None)",
        "Row(id=2, city=None)",
        "Row(id=4, city='Rom')",
        "Row(id=5, city='Rom')",
        "Row(id=7, city='Rom')",
    ]
    assert collected(ours.selectExpr("id", "size(l) AS n", "l.city AS c").where("id < 4")) == [
        "Row(id=0, n=-1, c=None)" if legacy_size(spark) else "Row(id=0, n=None, c=None)",
        "Row(id=1, n=2, c=[None, None])",
        "Row(id=2, n=2, c=[None, None])",
        "Row(id=3, n=-1, c=None)" if legacy_size(spark) else "Row(id=3, n=None, c=None)",
    ]


def legacy_size(spark: SparkSession) -> bool:
    """Whether the size of NULL is -1."""
    return spark.sql("SELECT size(CAST(NULL AS ARRAY<INT>)) = -1 AS b").collect()[0]["b"] is True


def test_a_folder_whose_structs_differ_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for part, names in enumerate((("x", "y"), ("X", "y"))):
        of = pa.struct([(name, pa.int32()) for name in names])
        pq.write_table(pa.table({"s": pa.array([dict.fromkeys(names, 1)], of)}), tmp_path / f"{part}.parquet")
    with pytest.raises(Exception, match="rewrite one of them"):
        spark.read.format("lakemark").load(str(tmp_path)).count()

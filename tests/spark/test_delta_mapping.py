"""Delta tables with column mapping by name: Spark sees the names that the table shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakemark
from mapped_delta import ALL, COLUMNS, commit, field, metadata, write_mapped
from spark_tables import create_indexes, is_counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(params=["unindexed", "indexed"])
def mapped(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    write_mapped(folder)
    if request.param == "indexed":
        create_indexes(folder, "city", "id", "place.x")
    return folder


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["id"])


def test_every_column_and_field_has_the_name_that_the_table_shows(spark: SparkSession, mapped: Path) -> None:
    ours = spark.read.format("lakemark").load(str(mapped))
    assert ours.columns == ["id", "city", "place", "many", "day"]
    assert collected(ours) == ALL
    fields = ours.select("id", "place.name", "many.x", "day")
    assert [(row["name"], row["x"]) for row in collected(fields)] == [
        (row["place"]["name"], [value["x"] for value in row["many"]]) for row in ALL
    ]


@pytest.mark.parametrize(
    ("condition", "is_right"),
    [
        ("city = 'Oslo'", lambda row: row["city"] == "Oslo"),
        ("city IS NULL AND day = 'day1'", lambda row: row["city"] is None and row["day"] == "day1"),
        ("id BETWEEN 490 AND 510", lambda row: 490 <= row["id"] <= 510),
        ("place.x = 3", lambda row: row["place"]["x"] == 3),
        ("city = 'Wien' AND place.x > 5", lambda row: row["city"] == "Wien" and row["place"]["x"] > 5),
    ],
)
def test_conditions_choose_the_right_rows(
    spark: SparkSession, mapped: Path, condition: str, is_right: Callable[[dict[str, Any]], bool]
) -> None:
    ours = spark.read.format("lakemark").load(str(mapped))
    expected = [row for row in ALL if is_right(row)]
    assert expected
    assert collected(ours.where(condition)) == expected
    assert ours.where(condition).count() == len(expected)


def test_a_name_that_another_column_takes_is_read_anew(spark: SparkSession, mapped: Path) -> None:
    is_indexed = bool(lakemark.Table(mapped).indexes)
    before = spark.read.format("lakemark").load(str(mapped))
    oslo = [row["id"] for row in ALL if row["city"] == "Oslo"]
    assert [row["id"] for row in collected(before.where("city = 'Oslo'"))] == oslo
    renamed = (COLUMNS[0], field("town", "col-2", "string"), field("city", "col-9", "long"), *COLUMNS[3:])
    commit(mapped, 1, metadata(*renamed))
    ours = spark.read.format("lakemark").load(str(mapped))
    assert dict(ours.dtypes)["city"] == "bigint"
    found = collected(ours.where("town = 'Oslo'"))
    assert [row["id"] for row in found] == oslo
    assert {row["city"] for row in found} == {None}
    assert ours.where("city IS NULL").count() == len(ALL)
    assert ours.where("city = 3").count() == 0
    assert is_counted(ours.where("town = 'Oslo'")) == is_indexed


def test_changes_are_seen_buffered_and_migrated(spark: SparkSession, mapped: Path) -> None:
    # A table with nested columns takes no changes; the columns are gone from the table, not from its files.
    flat = (COLUMNS[0], field("town", "col-2", "string"), COLUMNS[4])
    commit(mapped, 1, metadata(*flat))
    lakemark.Table(mapped, key="id")
    table = f"lm.`{mapped}`"
    spark.sql(f"UPDATE {table} SET town = 'Bern' WHERE id % 9 = 0")
    spark.sql(f"DELETE FROM {table} WHERE id % 50 = 4")
    spark.sql(f"INSERT INTO {table} VALUES (9000, 'Graz', 'day2')")
    spark.sql(
        f"MERGE INTO {table} AS t USING (SELECT 1 AS id UNION ALL SELECT 9001) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET town = 'Linz' "
        "WHEN NOT MATCHED THEN INSERT (id, town, day) VALUES (s.id, 'Linz', 'day2')"
    )
    expected = [
        {"id": row["id"], "town": "Bern" if row["id"] % 9 == 0 else row["city"], "day": row["day"]}
        for row in ALL
        if row["id"] % 50 != 4
    ]
    expected = [{**row, "town": "Linz"} if row["id"] == 1 else row for row in expected]
    expected += [{"id": 9000, "town": "Graz", "day": "day2"}, {"id": 9001, "town": "Linz", "day": "day2"}]
    bern = [row for row in expected if row["town"] == "Bern"]
    for step in ("buffered", "flushed", "migrated"):
        if step == "flushed":
            lakemark.Table(mapped).flush()
        if step == "migrated":
            lakemark.Table(mapped).migrate()
        assert collected(spark.table(table)) == expected, step
        assert collected(spark.table(table).where("town = 'Bern'")) == bern, step
        assert spark.table(table).where("town = 'Linz'").count() == 2, step


def test_names_may_have_what_sql_has_to_quote(spark: SparkSession, mapped: Path) -> None:
    shown = (
        COLUMNS[0],
        field("my `city`", "col-2", "string"),
        field("a.b", "col-7", "long"),
        field("my day", "col-5", "string"),
    )
    partitioned = metadata(*shown)
    partitioned["metaData"]["partitionColumns"] = ["my day"]
    commit(mapped, 1, partitioned)
    for column in ("my `city`", "a.b"):
        lakemark.Table(mapped).create_index([column], using="bitmap", name=f"on {column}", progress=False)
    table = spark.table(f"lm.`{mapped}`")
    assert table.columns == ["id", "my `city`", "a.b", "my day"]
    assert table.where("`my ``city``` = 'Oslo' AND `my day` = 'day1'").count() == sum(
        row["city"] == "Oslo" and row["day"] == "day1" for row in ALL
    )
    described = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE lm.`{mapped}`").collect()}
    assert described["my day"] == "string"
    spark.sql(f"DROP INDEX `on a.b` ON lm.`{mapped}`")
    assert "on a.b" not in [index.name for index in lakemark.Table(mapped).indexes]


def test_an_older_version_is_read_by_the_names_that_it_had(spark: SparkSession, mapped: Path) -> None:
    commit(mapped, 1, metadata(COLUMNS[0], field("town", "col-2", "string"), *COLUMNS[2:]))
    oslo = [row["id"] for row in ALL if row["city"] == "Oslo"]
    for version, name in ((0, "city"), (1, "town")):
        found = spark.read.format("lakemark").option("version", version).load(str(mapped))
        assert [row["id"] for row in collected(found.where(f"{name} = 'Oslo'"))] == oslo

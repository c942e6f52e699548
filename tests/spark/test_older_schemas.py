"""Spark's schema of a table may be older than the table: statements leave alone what they do not know, or fail."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from test_errors import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def rows(ids: range, **more: pa.Array) -> pa.Table:
    n = pa.array([n * 10 for n in ids], pa.int32())
    return pa.table({"id": pa.array(ids, pa.int64()), "city": [f"c{n}" for n in ids], "n": n, **more})


def add_to_folder(folder: Path, table: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f"part-{len(list(folder.glob('*.parquet')))}.parquet")


def add_to_delta(folder: Path, table: pa.Table) -> None:
    deltalake.write_deltalake(folder, table, mode="append", schema_mode="merge")


KINDS: dict[str, Callable[[Path, pa.Table], None]] = {"folder": add_to_folder, "delta": add_to_delta}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def names(spark: SparkSession) -> Iterator[Callable[[Path, str], None]]:
    """Gives the table of a folder the name `aged` in Spark's own catalog, which keeps the schema of that moment."""

    def named(folder: Path, columns: str = "") -> None:
        spark.sql("DROP TABLE IF EXISTS aged")
        spark.sql(f"CREATE TABLE aged {columns} USING lakemark LOCATION '{folder}'")

    yield named
    spark.sql("DROP TABLE IF EXISTS aged")


def state(folder: Path) -> dict[int, dict[str, object]]:
    found = lakemark.Table(folder).scan().to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


@pytest.fixture
def aged(kind: str, tmp_path: Path, names: Callable[[Path], None]) -> Path:
    """Spark knows the table without the column `extra`; rows of data files and buffered ones have values in it."""
    folder = tmp_path / "t"
    KINDS[kind](folder, rows(range(6)))
    lakemark.Table(folder, key="id")
    names(folder)
    KINDS[kind](folder, rows(range(20, 24), extra=pa.array(["e20", "e21", "e22", "e23"])))
    lakemark.Table(folder).update([{"id": 3, "extra": "three"}])
    return folder


def check(folder: Path, expected: dict[int, dict[str, object]]) -> None:
    """Now, and once it is in the data files."""
    assert state(folder) == expected
    lakemark.Table(folder).migrate(progress=False)
    assert state(folder) == expected


def test_an_update_leaves_columns_that_spark_does_not_know_as_they_are(spark: SparkSession, aged: Path) -> None:
    assert spark.table("aged").columns == ["id", "city", "n"]
    expected = state(aged)
    spark.sql("UPDATE aged SET n = n + 1, city = NULL WHERE id IN (2, 3, 21, 99)")
    for key, extra in ((2, None), (3, "three"), (21, "e21")):
        assert expected[key]["extra"] == extra
        expected[key] |= {"n": key * 10 + 1, "city": None}
    check(aged, expected)


def test_a_merge_leaves_columns_that_spark_does_not_know_as_they_are(spark: SparkSession, aged: Path) -> None:
    expected = state(aged)
    changes = [(3, "a", -3), (21, "b", -21), (22, "gone", 0), (50, "new", 50)]
    spark.createDataFrame(changes, "id BIGINT, city STRING, n INT").createOrReplaceTempView("changes")
    spark.sql("""
        MERGE INTO aged t USING changes c ON t.id = c.id
        WHEN MATCHED AND c.city = 'gone' THEN DELETE
        WHEN MATCHED THEN UPDATE SET n = c.n
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.id = 23 THEN UPDATE SET city = 'left'
    """)
    del expected[22]
    expected[3]["n"], expected[21]["n"], expected[23]["city"] = -3, -21, "left"
    expected[50] = {"id": 50, "city": "new", "n": 50, "extra": None}
    check(aged, expected)


def test_a_row_with_columns_that_spark_does_not_know_keeps_its_key(
    spark: SparkSession, aged: Path, names: Callable[[Path], None]
) -> None:
    expected = state(aged)
    spark.createDataFrame([(3, 1003)], "id BIGINT, other BIGINT").createOrReplaceTempView("changes")
    for statement in (
        "UPDATE aged SET id = id + 1000 WHERE id = 3",
        "MERGE INTO aged t USING changes c ON t.id = c.id WHEN MATCHED THEN UPDATE SET id = c.other",
    ):
        text = failure(lambda statement=statement: spark.sql(statement))
        assert "LakemarkException$Conflict" in text
        assert "has extra, which Spark's schema of it lacks" in text
        assert "dropped and created again" in text
        assert state(aged) == expected
    names(aged)
    spark.sql("UPDATE aged SET id = id + 1000 WHERE id = 3")
    expected[1003] = expected.pop(3) | {"id": 1003}
    check(aged, expected)


def test_an_update_of_structs_with_fields_that_spark_does_not_know_is_a_conflict(
    spark: SparkSession, tmp_path: Path, names: Callable[[Path], None]
) -> None:
    folder = tmp_path / "t"

    def places(ids: range, *fields: str) -> pa.Table:
        values = [{field: f"{field}{n}" for field in fields} for n in ids]
        return rows(ids, place=pa.array(values, pa.struct([(field, pa.string()) for field in fields])))

    add_to_delta(folder, places(range(4), "city"))
    lakemark.Table(folder, key="id")
    names(folder)
    add_to_delta(folder, places(range(10, 14), "city", "street"))
    expected = state(folder)
    for statement in (
        "UPDATE aged SET n = 7 WHERE id = 11",
        "UPDATE aged SET place.city = 'x' WHERE id = 11",
        "MERGE INTO aged t USING (SELECT 11L AS id) c ON t.id = c.id WHEN MATCHED THEN UPDATE SET n = 7",
    ):
        text = failure(lambda statement=statement: spark.sql(statement))
        assert "LakemarkException$Conflict" in text
        assert "has place.street, which Spark's schema of it lacks" in text
        assert state(folder) == expected
    spark.sql("DELETE FROM aged WHERE id = 12")
    del expected[12]
    names(folder)
    spark.sql("UPDATE aged SET n = 7, place.city = 'x' WHERE id = 11")
    expected[11] |= {"n": 7, "place": {"city": "x", "street": "street11"}}
    check(folder, expected)


def test_a_column_that_spark_was_not_told_of_is_left_alone(
    spark: SparkSession, tmp_path: Path, names: Callable[[Path, str], None]
) -> None:
    """Its type is none of Spark's, so that the name was created with the other columns."""
    folder = tmp_path / "t"
    times = pa.array([dt.time(12, 30, n) for n in range(4)], pa.time64("ns"))
    add_to_folder(folder, rows(range(4), time=times))
    lakemark.Table(folder, key="id")
    names(folder, "(id BIGINT NOT NULL, city STRING, n INT)")
    expected = state(folder)
    spark.sql("UPDATE aged SET n = -1 WHERE id = 2")
    expected[2]["n"] = -1
    check(folder, expected)
    # Nothing but the key is known: there is nothing to set.
    names(folder, "(id BIGINT NOT NULL)")
    spark.sql("UPDATE aged SET id = id WHERE id < 3")
    check(folder, expected)


def test_a_column_that_was_renamed_is_missed_and_nothing_is_changed(
    spark: SparkSession, tmp_path: Path, names: Callable[[Path], None]
) -> None:
    folder = tmp_path / "t"
    add_to_folder(folder, rows(range(4)))
    lakemark.Table(folder, key="id")
    names(folder)
    pq.write_table(rows(range(4)).rename_columns(["id", "city", "m"]), folder / "part-0.parquet")
    expected = state(folder)
    for statement, kind, says in (
        ("UPDATE aged SET city = 'x' WHERE id = 2", "NotFound", "no column 'n' any more"),
        ("UPDATE aged SET n = 7 WHERE id = 2", "SchemaMismatch", "has no column n"),
    ):
        text = failure(lambda statement=statement: spark.sql(statement))
        assert f"LakemarkException${kind}" in text
        assert says in text
        assert state(folder) == expected


def test_a_column_that_is_added_while_a_statement_runs_is_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    add_to_folder(folder, rows(range(4)))
    lakemark.Table(folder, key="id")
    added = folder / "part-1.parquet"
    with_extra = rows(range(20, 24), extra=pa.array(["e"] * 4))

    def adding(value: int) -> int:
        pq.write_table(with_extra, added)
        return value

    spark.udf.register("adding", adding, "int")
    text = failure(lambda: spark.sql(f"UPDATE lm.`{folder}` SET n = adding(n) + 1 WHERE id = 2"))
    assert added.exists()
    assert "LakemarkException$Conflict" in text
    assert "columns of the table were changed meanwhile" in text
    assert state(folder)[2]["n"] == 20

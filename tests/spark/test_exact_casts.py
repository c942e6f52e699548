"""Values that are written keep their digits where the connector casts them; where Spark casts them, its rules hold."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from spark_tables import create_indexes
from test_errors import failure

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OPERATIONS = ["insert", "upsert", "update", "delete"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = pa.struct([("n", pa.int64()), ("e", pa.decimal128(5, 2))])
    columns = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "a": pa.array([10, 20], pa.int64()),
            "e": pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(5, 2)),
            "d": pa.array([dt.date(2024, 1, 1)] * 2),
            "p": pa.array([{"n": 1, "e": Decimal("1.00")}] * 2, place),
            "l": pa.array([[1], [2]], pa.list_(pa.int64())),
        }
    )
    (tmp_path / "t").mkdir()
    pq.write_table(columns, tmp_path / "t" / "part.parquet")
    lakemark.Table(tmp_path / "t", key="id")
    return tmp_path / "t"


def write(spark: SparkSession, path: Path, operation: str, row: str) -> None:
    spark.sql(f"SELECT {row}").write.format("lakemark").mode("append").option("operation", operation).save(str(path))


def state(path: Path) -> list[dict[str, object]]:
    rows = lakemark.Table(path).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_writes_that_name_an_operation_keep_digits(spark: SparkSession, path: Path, operation: str) -> None:
    before = state(path)
    key = "3L AS id" if operation == "insert" else "1L AS id"
    refused = {"CAST(0.9 AS DOUBLE) AS id": "has 0.9 for id, which is Int64"}
    if operation != "delete":
        refused |= {
            f"{key}, 7.5D AS a": "has 7.5 for a, which is Int64",
            f"{key}, 7.5BD AS a": "has 7.5 for a, which is Int64",
            f"{key}, 1.239BD AS e": "has 1.239 for e, which is Decimal128(5, 2)",
            f"{key}, 1.239D AS e": "has 1.239 for e, which is Decimal128(5, 2)",
            f"{key}, '1.239' AS e": "has 1.239 for e, which is Decimal128(5, 2)",
            f"{key}, TIMESTAMP_NTZ '2024-05-05 13:00:00' AS d": "has 2024-05-05T13:00:00 for d, which is Date32",
            f"{key}, named_struct('n', 1.5D) AS p": "has 1.5 for p.n, which is Int64",
            f"{key}, named_struct('e', 1.239BD) AS p": "has 1.239 for p.e, which is Decimal128(5, 2)",
            f"{key}, array(1.0D, 1.5D) AS l": "has 1.5 for l[], which is Int64",
        }
    for row, says in refused.items():
        text = failure(lambda row=row: write(spark, path, operation, row))
        assert "LakemarkException$SchemaMismatch" in text, row
        assert says in text, row
        assert state(path) == before
        assert not list(path.rglob("*.arrows"))


def test_writes_by_path_keep_digits_without_an_operation(spark: SparkSession, path: Path) -> None:
    before = state(path)
    rows = spark.sql("SELECT 3L AS id, 7.5D AS a").write.format("lakemark").mode("append")
    text = failure(lambda: rows.save(str(path)))
    assert "LakemarkException$SchemaMismatch" in text
    assert "has 7.5 for a, which is Int64" in text
    assert state(path) == before


def test_what_fits_is_written(spark: SparkSession, path: Path) -> None:
    midnight = "TIMESTAMP_NTZ '2024-05-05 00:00:00' AS d"
    nested = "named_struct('n', 2.0D, 'e', '1.230') AS p, array(5.0D) AS l"
    row = f"1.0D AS id, 7.0BD AS a, 1.230BD AS e, {midnight}, {nested}"
    write(spark, path, "upsert", row)
    place = {"n": 2, "e": Decimal("1.23")}
    expected = {"id": 1, "a": 7, "e": Decimal("1.23"), "d": dt.date(2024, 5, 5), "p": place, "l": [5]}
    assert state(path)[0] == expected
    write(spark, path, "update", "1L AS id, CAST(7.5D AS BIGINT) AS a, CAST(1.239BD AS DECIMAL(5, 2)) AS e")
    assert (state(path)[0]["a"], state(path)[0]["e"]) == (7, Decimal("1.24"))


def test_batches_of_a_stream_keep_digits(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    spark.sql("SELECT 1L AS id, 7.5D AS a").write.parquet(str(source))
    before = state(path)
    errors: list[str] = []

    def upsert(batch: object, number: int) -> None:
        writer = batch.write.format("lakemark").mode("append").option("operation", "upsert")  # type: ignore[attr-defined]
        writer = writer.option("txn_app_id", "exact").option("txn_version", number)
        errors.append(failure(lambda: writer.save(str(path))))

    stream = spark.readStream.schema("id BIGINT, a DOUBLE").parquet(str(source)).writeStream.foreachBatch(upsert)
    stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert ["has 7.5 for a, which is Int64" in text for text in errors] == [True]
    assert state(path) == before


def test_sql_follows_the_policy_of_spark(spark: SparkSession, path: Path) -> None:
    table = f"lm.`{path}`"
    policy = "spark.sql.storeAssignmentPolicy"
    before = spark.conf.get(policy)
    try:
        # ANSI drops digits and refuses what is out of range.
        spark.conf.set(policy, "ANSI")
        spark.sql(f"UPDATE {table} SET a = 7.5, e = 1.239 WHERE id = 1")
        assert (state(path)[0]["a"], state(path)[0]["e"]) == (7, Decimal("1.24"))
        with pytest.raises(Exception, match=r"CAST_OVERFLOW|overflow"):
            spark.sql(f"UPDATE {table} SET a = 1e30BD WHERE id = 1")
        columns = "8.5D AS a, 1.239BD AS e, DATE '2024-01-01' AS d"
        nested = "named_struct('n', 1L, 'e', CAST(1 AS DECIMAL(5, 2))) AS p, array(1L) AS l"
        spark.sql(f"SELECT 3L AS id, {columns}, {nested}").writeTo(table).append()
        assert (state(path)[2]["a"], state(path)[2]["e"]) == (8, Decimal("1.24"))
        spark.conf.set(policy, "STRICT")
        with pytest.raises(Exception, match=r"INCOMPATIBLE_DATA_FOR_TABLE|Cannot safely cast"):
            spark.sql(f"UPDATE {table} SET a = 7.5 WHERE id = 1")
        assert state(path)[0]["a"] == 7
    finally:
        spark.conf.set(policy, before)


# ---- nanoseconds, of which Spark knows no more than microseconds

FINE, WHOLE = 1_700_000_000_123_456_789, 1_700_000_000_123_456_000


def write_moments(folder: Path, moments: list[int | None], key: str = "id") -> Path:
    """Rows 1, 2, 3 … with these nanoseconds since 1970."""
    ids = range(1, len(moments) + 1)
    at = pa.array(moments, pa.timestamp("ns"))
    inside = pa.array([{"at": moment} for moment in moments], pa.struct([("at", pa.timestamp("ns"))]))
    folder.mkdir()
    columns = {"id": pa.array(ids, pa.int64()), "at": at, "n": pa.array(ids, pa.int32())}
    pq.write_table(pa.table(columns | ({"inside": inside} if key == "n" else {})), folder / "part.parquet")
    lakemark.Table(folder, key=key)
    return folder


def moments(path: Path) -> dict[int, tuple[int | None, int]]:
    """For each id the nanoseconds and `n`."""
    found = pa.table(lakemark.Table(path).scan())
    at = found["at"].cast(pa.int64()).to_pylist()
    return dict(zip(found["id"].to_pylist(), zip(at, found["n"].to_pylist(), strict=True), strict=True))


def refused(spark: SparkSession, path: Path, statement: str, column: str = "at") -> None:
    """Nothing is changed, and the error names the value and what to do."""
    before = pa.table(lakemark.Table(path).scan()).sort_by("n")
    text = failure(lambda: spark.sql(statement.format(f"lm.`{path}`")))
    assert "LakemarkException$Unsupported" in text
    assert f"column '{column}' of " in text
    assert "has 2023-11-14T22:13:20.123456789, which Spark would cut" in text
    assert "Table.update" in text
    assert pa.table(lakemark.Table(path).scan()).sort_by("n") == before


MERGED = "MERGE INTO {} t USING (SELECT 2L AS id) s ON t.id = s.id WHEN MATCHED THEN "


def test_a_row_whose_digits_spark_would_cut_is_not_written_back(spark: SparkSession, tmp_path: Path) -> None:
    path = write_moments(tmp_path / "t", [WHOLE, FINE, None, FINE])
    table = f"lm.`{path}`"
    for statement in (
        "UPDATE {} SET n = n + 1 WHERE id = 2",
        "UPDATE {} SET id = id + 10 WHERE id = 2",
        "UPDATE {} SET at = at + INTERVAL 1 DAY WHERE id = 2",
        MERGED + "UPDATE SET n = 7",
    ):
        refused(spark, path, statement)
    # Rows without such digits, statements that do not read the column, and rows that go.
    spark.sql(f"UPDATE {table} SET n = n + 10 WHERE id IN (1, 3)")
    spark.sql(f"UPDATE {table} SET at = TIMESTAMP_NTZ '2023-11-14 22:13:20.5' WHERE id = 2")
    spark.sql(f"DELETE FROM {table} WHERE id = 4")
    spark.sql(f"INSERT INTO {table} VALUES (5, TIMESTAMP_NTZ '2023-11-14 22:13:20.123456', 5)")
    expected = {1: (WHOLE, 11), 2: (1_700_000_000_500_000_000, 2), 3: (None, 13), 5: (WHOLE, 5)}
    assert moments(path) == expected
    spark.sql((MERGED + "DELETE").format(table))
    del expected[2]
    assert moments(path) == expected


def test_digits_of_buffered_rows_are_not_cut(spark: SparkSession, tmp_path: Path) -> None:
    path = write_moments(tmp_path / "t", [WHOLE, WHOLE])
    table = lakemark.Table(path)
    table.update({"id": [2], "at": pa.array([FINE], pa.timestamp("ns"))})
    refused(spark, path, "UPDATE {} SET n = n + 1 WHERE id = 2")
    table.flush()
    refused(spark, path, "UPDATE {} SET n = n + 1 WHERE id = 2")
    refused(spark, path, MERGED + "UPDATE SET n = 7")
    table.update([{"id": 2, "n": 7}])
    assert moments(path) == {1: (WHOLE, 1), 2: (FINE, 7)}


def test_digits_inside_of_structs_are_not_cut(spark: SparkSession, tmp_path: Path) -> None:
    path = write_moments(tmp_path / "t", [WHOLE, FINE], key="n")
    refused(spark, path, "UPDATE {} SET id = 7, at = NULL WHERE n = 2", column="inside.at")


def test_keys_that_spark_would_cut_name_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """A cut key would be that of no row, or of another one."""
    path = write_moments(tmp_path / "t", [WHOLE, FINE], key="at")
    refused(spark, path, "DELETE FROM {} WHERE id = 2")
    refused(spark, path, "UPDATE {} SET n = 7 WHERE id = 2")
    # With an index on its column the condition reads the row alone that it chooses.
    create_indexes(path, "id")
    spark.sql(f"DELETE FROM lm.`{path}` WHERE id = 1")
    assert moments(path) == {2: (FINE, 2)}

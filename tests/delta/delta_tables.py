"""Delta tables of which each row group has small and large values, so that Delta skips nothing of them."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FILES = 3
GROUPS = 10
GROUP_ROWS = 100
FILE_ROWS = GROUPS * GROUP_ROWS
ALL_ROWS = FILES * FILE_ROWS

# Each is asked by the names that columns have at first.
CONDITIONS = (
    "k = 1237",
    "k IS NULL",
    "k <=> 5",
    "name = 'n01237' OR name = 'n00000'",
    "name LIKE 'n0000%'",
    "k IN (5, 77, 2000, 2001) AND id % 2 = 0",
    "NOT (k >= 3)",
    "k = 1 AND k = 2",
    "day = DATE '2024-01-05' AND k < 500",
    "price = 1.25",
    "place.x = 7 AND place.town = 'Rom'",
    "id BETWEEN 990 AND 1010",
    "length(name) = 3",
)


def data(part: int) -> pa.Table:
    """The rows of a file: each value of `k` and `name` is in one row, or in none."""
    ids = range(part * FILE_ROWS, (part + 1) * FILE_ROWS)
    scattered = [n * 1237 % ALL_ROWS for n in ids]
    town = ("Oslo", "Rom", "Wien")
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([None if n % 97 == 96 else n for n in scattered], pa.int32()),
            "name": [f"n{n:05}" for n in scattered],
            "day": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=n % 90) for n in scattered]),
            "price": pa.array([decimal.Decimal(n % 500) / 100 for n in scattered], pa.decimal128(10, 2)),
            "place": pa.array(
                [{"x": n % 50, "town": town[n % 3]} for n in scattered],
                pa.struct([("x", pa.int32()), ("town", pa.string())]),
            ),
        }
    )


def write_parquet(folder: Path, columns: tuple[str, ...] = ()) -> Path:
    """Files of ten row groups each: of all columns, or of some."""
    folder.mkdir(parents=True)
    for part in range(FILES):
        table = data(part).select(columns) if columns else data(part)
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=GROUP_ROWS, use_dictionary=False)
    return folder


def write_delta(spark: SparkSession, folder: Path, name: str, columns: tuple[str, ...] = ()) -> Path:
    """A Delta table with a name in Spark's catalog."""
    write_parquet(folder, columns)
    spark.sql(f"CONVERT TO DELTA parquet.`{folder}`")
    spark.sql(f"CREATE TABLE own.{name} USING delta LOCATION '{folder}'")
    return folder


def asked_together(table: DataFrame, conditions: tuple[str, ...], *more: str) -> DataFrame:
    """The rows of each condition, each by a scan of its own, with expressions on top of the columns."""
    frames = [
        table.where(condition).select(F.lit(condition).alias("asked"), "*", *(F.expr(text) for text in more))
        for condition in conditions
    ]
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionAll(frame)
    return union


def counted_together(spark: SparkSession, table: str, conditions: tuple[str, ...]) -> list[tuple[str, int]]:
    """How many rows each condition selects, by one query."""
    texts = [condition.replace("'", "''") for condition in conditions]
    asked = zip(texts, conditions, strict=True)
    union = " UNION ALL ".join(f"SELECT '{text}' AS asked, count(*) AS n FROM {table} WHERE {of}" for text, of in asked)
    return sorted((row.asked, row.n) for row in spark.sql(union).collect())

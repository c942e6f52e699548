"""Statements that Delta runs on its tables do what they do without indexes: the same rows, and the same commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_tables import write_delta
from file_scans import collected, logged
from spark_tables import create_indexes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STATEMENTS = (
    "UPDATE {t} SET name = 'updated' WHERE k = 1237",
    "UPDATE {t} SET price = price + 1 WHERE k < 10 AND place.x > 3",
    "DELETE FROM {t} WHERE k IN (5, 77) OR name = 'n00100'",
    """MERGE INTO {t} AS t USING (SELECT id, k FROM {t} WHERE k BETWEEN 100 AND 120) AS s ON t.id = s.id
    WHEN MATCHED AND s.k > 110 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'merged'""",
    "INSERT INTO {t} SELECT id + 10000, k, name, day, price, place FROM {t} WHERE k = 1000",
    "OPTIMIZE {t} ZORDER BY (k)",
    "DELETE FROM {t} WHERE k = 2000",
    "RESTORE TABLE {t} TO VERSION AS OF 4",
)
# Those of these names are about time and bytes, which differ from run to run.
CHANGING = ("Time", "Bytes", "Size", "files", "Files")


def commits(spark: SparkSession, table: str) -> list[tuple[str, dict[str, str]]]:
    """What each commit did, in numbers of rows."""
    history = spark.sql(f"DESCRIBE HISTORY {table}").collect()
    return [
        (
            row.operation,
            {
                name: of
                for name, of in (row.operationMetrics or {}).items()
                if not any(word in name for word in CHANGING)
            },
        )
        for row in history
    ]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_statements_are_the_same_with_indexes(
    spark: SparkSession, fast: SparkSession, tmp_path: Path, vectors: str
) -> None:
    tables = {}
    for session, kind in ((fast, "ours"), (spark, "theirs")):
        tables[kind] = f"own.{kind}_{vectors}"
        folder = write_delta(spark, tmp_path / kind, f"{kind}_{vectors}")
        create_indexes(folder, "k", "name")
        spark.sql(f"ALTER TABLE {tables[kind]} SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')")
        for statement in STATEMENTS:
            session.sql(statement.format(t=tables[kind]))
            assert collected(fast.table(tables[kind]).where("k < 200")) == collected(
                spark.table(tables[kind]).where("k < 200")
            ), statement
    assert collected(spark.table(tables["ours"])) == collected(spark.table(tables["theirs"]))
    assert commits(spark, tables["ours"]) == commits(spark, tables["theirs"])


def test_what_a_statement_looks_for_in_its_own_table_is_looked_for_by_delta(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_delta(spark, tmp_path / "t", "left_alone")
    create_indexes(folder, "k", "name")
    with logged(spark) as lines:
        fast.sql("UPDATE own.left_alone SET name = 'updated' WHERE k = 1237")
        fast.sql("DELETE FROM own.left_alone WHERE k = 5")
        fast.sql("OPTIMIZE own.left_alone")
        assert [line for line in lines() if "rule out" in line] == []
        assert fast.table("own.left_alone").where("k = 77").count() == 1
        assert [line for line in lines() if "rule out" in line] != []

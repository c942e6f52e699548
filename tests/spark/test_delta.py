"""Delta tables: the log is read in Rust, and deleted rows stay deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from spark_tables import create_indexes, delete_by_vector, is_counted, write_delta

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DELETED = [0, 3, 5, 77]


@pytest.fixture(params=["unindexed", "indexed-before", "indexed-after"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "delta"
    write_delta(folder)
    if request.param == "indexed-before":
        create_indexes(folder, "kind", "id")
    delete_by_vector(folder, 2023, DELETED)
    if request.param == "indexed-after":
        create_indexes(folder, "kind", "id")
    return folder


def test_rows_behind_a_deletion_vector_are_gone(spark: SparkSession, folder: Path) -> None:
    ours = spark.read.format("lakemark").load(str(folder))
    assert ours.columns == ["id", "kind", "year"]
    assert sorted(row.id for row in ours.select("id").collect()) == [n for n in range(250) if n not in DELETED]
    assert ours.count() == 246
    assert ours.where("kind = 'k0'").count() == 48
    assert sorted(row.id for row in ours.where("kind = 'k0' AND id < 20").collect()) == [10, 15]
    assert ours.where("id IN (3, 4, 5, 6)").orderBy("id").collect() == [(4, "k4", 2023), (6, "k1", 2023)]


def test_partition_columns_have_the_types_of_the_log(spark: SparkSession, folder: Path) -> None:
    ours = spark.read.format("lakemark").load(str(folder))
    assert dict(ours.dtypes)["year"] == "int"
    assert ours.where("year = 2023").count() == 96
    assert ours.where("year > 2023 AND kind = 'k1'").count() == 30
    assert [row.year for row in ours.select("year").distinct().orderBy("year").collect()] == [2023, 2024]


def test_a_newer_version_is_seen_without_loading_again(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    write_delta(folder)
    create_indexes(folder, "kind")
    ours = spark.read.format("lakemark").load(str(folder))
    assert is_counted(ours.where("kind = 'k1'"))
    assert ours.where("kind = 'k1'").count() == 50
    late = pa.table({"id": [900], "kind": ["k1"], "year": pa.array([2024], pa.int32())})
    deltalake.write_deltalake(folder, late, mode="append")
    assert ours.where("kind = 'k1'").count() == 51

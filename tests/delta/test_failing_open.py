"""What goes wrong with indexes of a Delta table costs time only, and settings leave the table to Delta."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import lakemark
from delta_tables import CONDITIONS, asked_together, write_delta, write_parquet
from file_scans import collected, logged, settings, skipped, without_numbers
from spark_tables import create_indexes, plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("harm", ["segments", "manifest", "no segments", "no store"])
def test_a_damaged_store_costs_time_only(spark: SparkSession, fast: SparkSession, tmp_path: Path, harm: str) -> None:
    name = harm.replace(" ", "_")
    folder = write_delta(spark, tmp_path / "t", f"harmed_{name}")
    create_indexes(folder, "k")
    store = folder / "_lakemark"
    if harm == "segments":
        for path in (store / "indexes").iterdir():
            path.write_bytes(path.read_bytes()[:-9] + b"\0" * 9)
    elif harm == "manifest":
        for path in (store / "manifest").iterdir():
            path.write_bytes(b"nothing")
    elif harm == "no segments":
        shutil.rmtree(store / "indexes")
    else:
        shutil.rmtree(store)
    ours, theirs = (asked_together(session.table(f"own.harmed_{name}"), CONDITIONS) for session in (fast, spark))
    assert collected(ours) == collected(theirs)
    assert skipped(ours) is None


def test_whatever_fails_is_told_once_and_leaves_delta_s_plan(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_delta(spark, tmp_path / "t", "failing")
    with settings((fast,), {f"spark.lakemark.store.{folder}": "nowhere://at/all"}), logged(spark) as lines:
        for _ in range(2):
            ours, theirs = (session.table("own.failing").where("k = 5") for session in (fast, spark))
            assert collected(ours) == collected(theirs)
            assert without_numbers(ours) == without_numbers(theirs)
    assert len([line for line in lines() if "indexes are not used" in line]) == 1


def test_settings_leave_the_table_to_delta(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_delta(spark, tmp_path / "t", "switched")
    create_indexes(folder, "k")

    def lookup(session: SparkSession) -> str:
        return without_numbers(session.table("own.switched").where("k = 1237"))

    assert lookup(fast) != lookup(spark)
    for setting in ("spark.lakemark.delta", "spark.lakemark.use_index"):
        with settings((fast,), {setting: "false"}):
            assert lookup(fast) == lookup(spark)
        fast.conf.set("spark.lakemark.use_index", "true")


def test_tables_without_indexes_have_the_plans_of_delta(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_delta(spark, tmp_path / "t", "plain")
    for step in ("no store", "no index of the column"):
        if step != "no store":
            create_indexes(folder, "name")
        for condition in ("k = 5", "k + 1 = 5", "true"):
            ours, theirs = (session.table("own.plain").where(condition) for session in (fast, spark))
            assert without_numbers(ours) == without_numbers(theirs), (step, condition)


def test_indexes_in_another_place(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_delta(spark, tmp_path / "t", "placed")
    lakemark.Table(folder, store=tmp_path / "store").create_index("k", using="bitmap", progress=False)
    lookup = "SELECT id FROM own.placed WHERE k = 1237"
    assert skipped(fast.sql(lookup)) is None
    with settings((fast,), {f"spark.lakemark.store.{folder}": str(tmp_path / "store")}):
        assert skipped(fast.sql(lookup)) == (29, 30)
        assert fast.sql(lookup).collect() == [(1,)]
        assert "LocalTableScan" in plan_of(fast.sql("SELECT count(*) FROM lm.own.placed WHERE k = 1237"))


def test_parquet_files_use_indexes_beside_delta_too(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "t")
    create_indexes(folder, "k", "name")
    ours, theirs = (asked_together(session.read.parquet(str(folder)), CONDITIONS) for session in (fast, spark))
    assert collected(ours) == collected(theirs)
    assert skipped(fast.read.parquet(str(folder)).where("k = 1237")) == (29, 30)


def test_the_folder_of_a_delta_table_is_no_folder_of_parquet_files(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_delta(spark, tmp_path / "t", "as_files")
    create_indexes(folder, "k")
    with settings((spark, fast), {"spark.databricks.delta.formatCheck.enabled": "false"}):
        ours, theirs = (session.read.parquet(str(folder)).where("k = 5") for session in (fast, spark))
        assert without_numbers(ours) == without_numbers(theirs)


def test_names_of_delta_tables_are_names_of_the_connector_s_catalog(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_delta(spark, tmp_path / "t", "both")
    for session in (spark, fast):
        assert collected(session.table("lm.own.both").where("k < 5")) == collected(
            session.table("own.both").where("k < 5")
        )
    fast.sql("CREATE INDEX by_k ON lm.own.both USING bitmap (k)")
    assert [index.name for index in lakemark.Table(folder).indexes] == ["by_k"]
    assert "LocalTableScan" in plan_of(fast.sql("SELECT count(*) FROM lm.own.both WHERE k = 5"))
    assert skipped(fast.table("own.both").where("k = 5")) == (29, 30)
    assert fast.sql("CALL lm.system.verify(table => 'own.both')").count() == 1
    with pytest.raises(Exception, match="drop it there"):
        fast.sql("DROP TABLE lm.own.both")

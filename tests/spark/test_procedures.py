"""CALL lm.system.…: the verbs of the shell, with their reports as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakemark
from spark_tables import ROWS_PER_FILE, add_file, create_indexes, write_folder
from test_catalog import refusal, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "t", files=2)
    create_indexes(folder, "k")
    return folder


def report(frame: DataFrame) -> dict[str, object]:
    (row,) = frame.collect()
    return dict(row.asDict())


def test_procedures_are_listed(spark: SparkSession) -> None:
    listed = {row[-1] for row in rows(spark, "SHOW PROCEDURES IN lm.system")}
    assert listed == {
        "advise",
        "build",
        "compact",
        "declare_key",
        "history",
        "links",
        "migrate",
        "path",
        "publish",
        "reach",
        "repair",
        "vacuum",
        "verify",
    }
    assert "Failed to load routine `lm`.`system`.`restore`" in refusal(spark, "CALL lm.system.restore(table => 't')")
    assert "Failed to load routine `lm`.`air`.`build`" in refusal(spark, "CALL lm.air.build(table => 't')")


def test_build_fills_what_is_not_covered(spark: SparkSession, folder: Path) -> None:
    add_file(folder, 2)
    built = report(spark.sql(f"CALL lm.system.build(table => '{folder}', threads => 1)"))
    assert (built["indexes"], built["files"], built["rows"]) == (["k_bitmap"], 1, ROWS_PER_FILE)
    assert (built["segments"], built["declined"], built["failed"]) == (1, [], [])
    again = report(spark.sql(f"CALL lm.system.build('{folder}', index => 'k_bitmap')"))
    assert (again["indexes"], again["files"]) == ([], 0)
    compacted = report(spark.sql(f"CALL lm.system.compact(table => '{folder}')"))
    assert (compacted["indexes"], compacted["segments_merged"], compacted["segments_written"]) == (["k_bitmap"], 2, 1)


def test_a_build_merges_segments_where_it_is_told_to(spark: SparkSession, folder: Path) -> None:
    for file in range(2, 6):
        add_file(folder, file)
        built = report(spark.sql(f"CALL lm.system.build(table => '{folder}')"))
        assert (built["segments"], built["segments_merged"], built["merged_into"], built["bytes_merged"]) == (
            1,
            0,
            0,
            0,
        )
    add_file(folder, 6)
    built = report(spark.sql(f"CALL lm.system.build(table => '{folder}', merge => true)"))
    assert (built["segments"], built["merged_into"]) == (1, 1)
    # The first segment has two files, and may stay beside the others.
    left = 7 - built["segments_merged"]
    assert left in {1, 2}
    compacted = report(spark.sql(f"CALL lm.system.compact(table => '{folder}', full => true)"))
    assert compacted["segments_merged"] == (left if left > 1 else 0)


def test_verify_finds_damage(spark: SparkSession, folder: Path) -> None:
    call = f"CALL lm.system.verify(table => '{folder}')"
    assert spark.sql(call).columns == ["name", "files_ok", "damaged", "stale"]
    assert rows(spark, call) == [("k_bitmap", 2, [], [])]
    (segment,) = (folder / "_lakemark").rglob("*.lmx")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    found = report(spark.sql(call))
    (verdict,) = lakemark.Table(folder).verify().indexes
    assert len(verdict.damaged) == 1
    damaged = [f"{each.path}: {each.problem}" for each in verdict.damaged]
    assert (found["name"], found["damaged"], found["stale"]) == ("k_bitmap", damaged, [])


def test_advise_proposes_indexes(spark: SparkSession, folder: Path) -> None:
    proposed = spark.sql(f"CALL lm.system.advise(table => '{folder}')")
    columns = ["column", "kind", "encoding", "reason", "values", "predicted_bytes", "saved_bytes", "queries", "include"]
    assert proposed.columns == columns
    indexes = lakemark.Table(folder).advise().indexes
    assert [row["column"] for row in proposed.collect()] == [each.column for each in indexes]


def test_declare_key_lets_a_table_take_changes(spark: SparkSession, folder: Path) -> None:
    change = f"INSERT INTO lm.`{folder}` (id, city) VALUES (-1, 'Bergen')"
    assert "CALL lm.system.declare_key" in refusal(spark, change)
    options = "map('alpha', '1.5', 'cache_bytes', '67108864')"
    call = f"CALL lm.system.declare_key(table => '{folder}', columns => array('ID'), options => {options})"
    assert report(spark.sql(call)) == {"key": ["id"], "declared": True}
    assert report(spark.sql(call)) == {"key": ["id"], "declared": False}
    told = lakemark.Table(folder).updates
    assert (told.key, told.writes_bound) == (("id",), 2 - 0.25 * 1.5**2)
    spark.sql(change)
    assert rows(spark, f"SELECT id, city FROM lm.`{folder}` WHERE id < 0") == [(-1, "Bergen")]


def test_keys_that_tell_no_rows_apart_are_refused(spark: SparkSession, folder: Path) -> None:
    def told(arguments: str) -> str:
        return refusal(spark, f"CALL lm.system.declare_key(table => '{folder}'{arguments})")

    assert "a key needs a column" in told("")
    assert "there is no column nobody" in told(", columns => array('nobody')")
    assert "rows without a value" in told(", columns => array('city')")
    assert "a NULL in it" in told(", columns => array('id', CAST(NULL AS STRING))")
    assert "alpha is 7; with" in told(", columns => array('id'), options => map('alpha', '7')")


def test_migrate_and_history(spark: SparkSession, folder: Path) -> None:
    table = lakemark.Table(folder, key="id")
    table.update([{"id": 5, "city": "Bergen"}])
    found = f"SELECT city FROM lm.`{folder}` WHERE id = 5"
    assert rows(spark, found) == [("Bergen",)]
    migrated = report(spark.sql(f"CALL lm.system.migrate(table => '{folder}')"))
    assert (migrated["rows"], migrated["files_replaced"], migrated["files_written"]) == (1, 1, 1)
    assert rows(spark, found) == [("Bergen",)]
    history = rows(spark, f"CALL lm.system.history(table => '{folder}')")
    ours = table.history()
    assert [(row[0], row[2]) for row in history] == [(each.version, each.operation) for each in ours]
    assert history[0][1] is not None
    assert len(rows(spark, f"CALL lm.system.history(table => '{folder}', limit => 1)")) == 1
    table.update([{"id": 6, "city": "Bergen"}])
    sliced = report(spark.sql(f"CALL lm.system.migrate(table => '{folder}', max_bytes => 1000)"))
    assert (sliced["rows"], sliced["files_replaced"]) == (1, 1)
    assert "max_bytes is 0" in refusal(spark, f"CALL lm.system.migrate(table => '{folder}', max_bytes => 0)")
    published = report(spark.sql(f"CALL lm.system.publish(table => '{folder}')"))
    assert (published["files_published"], published["originals_moved"]) == (1, 1)
    assert spark.read.parquet(str(folder)).where("id = 5").select("city").collect() == [("Bergen",)]


def test_vacuum_lists_files(spark: SparkSession, folder: Path) -> None:
    call = f"CALL lm.system.vacuum(table => '{folder}', dry_run => true, older_than => '2h')"
    assert rows(spark, call) == []
    assert spark.sql(call).columns == ["path", "bytes", "dry_run"]
    assert "e.g. 12h or 30d" in refusal(spark, f"CALL lm.system.vacuum(table => '{folder}', older_than => 'a week')")
    assert "hour" in refusal(spark, f"CALL lm.system.vacuum(table => '{folder}', older_than => '0h')")


def test_tables_are_named_or_are_paths(spark: SparkSession, warehouse: Path) -> None:
    folder = write_folder(warehouse / "checked", files=1)
    create_indexes(folder, "k")
    for name in ("checked", "lm.checked", f"`{folder}`", str(folder)):
        assert rows(spark, f"CALL lm.system.verify(table => '{name}')") == [("k_bitmap", 1, [], [])], name
    assert "there is no table absent in the catalog lm" in refusal(spark, "CALL lm.system.verify(table => 'absent')")
    assert "verify needs a table" in refusal(spark, "CALL lm.system.verify(table => NULL)")
    assert "it must be 1 or more" in refusal(spark, "CALL lm.system.build(table => 'checked', threads => 0)")

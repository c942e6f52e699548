"""Spark's own Delta reads what migrations commit and goes on from it, and Lakemark reads what Delta commits."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = 300
# What a table may ask of its writers.
TABLES = {
    "plain": {},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "row tracking": {"delta.enableRowTracking": "true"},
    "change data feed": {"delta.enableChangeDataFeed": "true"},
    "in-commit timestamps": {"delta.enableInCommitTimestamps": "true"},
    "type widening": {"delta.enableTypeWidening": "true"},
    "mapped by name": {"delta.columnMapping.mode": "name"},
    "mapped by id": {"delta.columnMapping.mode": "id"},
    "checkpoints": {"delta.checkpointInterval": "1"},
    "checkpoints of the second kind": {"delta.checkpointInterval": "1", "delta.checkpointPolicy": "v2"},
}
ALL = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.columnMapping.mode": "id",
    "delta.checkpointInterval": "2",
}


def create(spark: SparkSession, path: Path, properties: dict[str, str], *, partitioned: bool = False) -> None:
    """A table of two files or more, in versions 0 and 1."""
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT NOT NULL, v BIGINT, part STRING) USING delta"
        + (" PARTITIONED BY (part)" if partitioned else "")
        + (f" TBLPROPERTIES ({given})" if given else "")
    )
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, id % 17 + 1, concat('p', id % 3) FROM range(0, {ROWS}, 1, 2)")


def by_id(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def read(spark: SparkSession, path: Path) -> dict[int, dict[str, Any]]:
    """The rows as Spark has them."""
    return by_id([row.asDict(recursive=True) for row in spark.read.format("delta").load(str(path)).collect()])


def own(path: Path, condition: str | None = None) -> dict[int, dict[str, Any]]:
    """The rows as Lakemark has them, with an index and without."""
    table = lakemark.Table(path)
    found = by_id(table.scan(condition).to_arrow().to_pylist())
    assert found == by_id(table.scan(condition, use_index=False).to_arrow().to_pylist())
    return found


def row(key: int, v: int, part: str) -> dict[str, Any]:
    return {"id": key, "v": v, "part": part}


@pytest.mark.parametrize(
    ("properties", "partitioned"),
    [*[(properties, False) for properties in TABLES.values()], ({}, True), (ALL, False), (ALL, True)],
    ids=[*TABLES, "partitioned", "all", "all, partitioned"],
)
def test_spark_reads_a_migration_and_goes_on_from_it(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partitioned: bool
) -> None:
    create(spark, tmp_path, properties, partitioned=partitioned)
    table = lakemark.Table(tmp_path, key="id")
    table.create_index("v", progress=False)
    expected = read(spark, tmp_path)
    for turn in range(3):
        # A row that changes, one that moves to another partition, one that is new, and one that goes.
        changed = [row(1, 50 + turn, "p1"), row(2, 60 + turn, f"q{turn}"), row(1000 + turn, 70, "p0")]
        table.upsert({name: [each[name] for each in changed] for name in ("id", "v", "part")})
        table.delete([3 + turn])
        table.migrate()
        expected |= by_id(changed)
        del expected[3 + turn]
        assert read(spark, tmp_path) == own(tmp_path) == expected
        spark.sql(f"UPDATE delta.`{tmp_path}` SET v = v + 1 WHERE id IN (2, 30)")
        spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = {20 + turn}")
        for key in (2, 30):
            expected[key] = {**expected[key], "v": expected[key]["v"] + 1}
        del expected[20 + turn]
        if turn == 1:
            spark.sql(f"OPTIMIZE delta.`{tmp_path}`")
        assert read(spark, tmp_path) == own(tmp_path) == expected
    wanted = {key: each for key, each in expected.items() if each["v"] == 5}
    assert own(tmp_path, "v = 5") == wanted
    operations = [each.operation for each in spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}`").collect()]
    assert operations.count("MIGRATE") == 3


@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_have_the_ids_in_spark_that_they_had(spark: SparkSession, tmp_path: Path, partitioned: bool) -> None:
    create(spark, tmp_path, {"delta.enableRowTracking": "true"}, partitioned=partitioned)

    def identities() -> dict[int, tuple[int, int]]:
        names = ("id", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS version")
        found = spark.read.format("delta").load(str(tmp_path)).selectExpr(*names).collect()
        assert len({each.row_id for each in found}) == len(found)
        return {each.id: (each.row_id, each.version) for each in found}

    before = identities()
    table = lakemark.Table(tmp_path, key="id")
    table.upsert({"id": [1, 2, 1000], "v": [50, 60, 70], "part": ["p1", "p9", "p0"]})
    table.delete([7])
    version = table.migrate().delta_version
    after = identities()
    kept = before.keys() - {1, 2, 7}
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    assert {key: after[key] for key in (1, 2)} == {key: (before[key][0], version) for key in (1, 2)}
    assert after.keys() == (before.keys() - {7}) | {1000}
    assert after[1000][0] > max(row_id for row_id, _ in before.values())
    assert after[1000][1] == version
    # Spark copies what we wrote beside the rows.
    spark.sql(f"OPTIMIZE delta.`{tmp_path}`")
    assert identities() == after


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("kind", ["plain", "deletion vectors", "row tracking", "mapped by name", "mapped by id"])
def test_spark_reads_the_changes_of_a_migration(
    spark: SparkSession, tmp_path: Path, kind: str, partitioned: bool
) -> None:
    create(spark, tmp_path, {**TABLES[kind], "delta.enableChangeDataFeed": "true"}, partitioned=partitioned)
    # What a deletion vector has hidden before is no change of the migration.
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = 10")
    table = lakemark.Table(tmp_path, key="id")
    table.upsert({"id": [1, 2, 1000], "v": [50, 60, 70], "part": ["p1", "p9", "p0"]})
    table.delete([7])
    version = table.migrate().delta_version
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    found = feed.load(str(tmp_path)).select("id", "v", "part", "_change_type", "_commit_version").collect()
    assert sorted(tuple(each) for each in found) == [
        (1, 2, "p1", "update_preimage", version),
        (1, 50, "p1", "update_postimage", version),
        (2, 3, "p2", "update_preimage", version),
        (2, 60, "p9", "update_postimage", version),
        (7, 8, "p1", "delete", version),
        (1000, 70, "p0", "insert", version),
    ]


def test_a_constraint_that_spark_added_holds_for_migrations(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path, {})
    condition = "v < 1000 AND (part IN ('p0', 'p1', 'p2') OR part LIKE 'q%')"
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` ADD CONSTRAINT small CHECK ({condition})")
    expected = read(spark, tmp_path)
    table = lakemark.Table(tmp_path, key="id")
    table.upsert({"id": [1, 1000], "v": [50, 5000], "part": ["q1", "p0"]})
    with pytest.raises(lakemark.ConstraintViolationError, match=r"row id = 1000 .*CHECK constraint small"):
        table.migrate()
    assert read(spark, tmp_path) == expected
    table.update({"id": [1000], "v": [51]})
    table.migrate()
    expected |= by_id([row(1, 50, "q1"), row(1000, 51, "p0")])
    assert read(spark, tmp_path) == own(tmp_path) == expected


def test_times_of_commits_grow_in_the_history_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path, {"delta.enableInCommitTimestamps": "true"})
    table = lakemark.Table(tmp_path, key="id")
    for turn in range(3):
        table.update({"id": [1], "v": [50 + turn]})
        table.migrate()
        spark.sql(f"UPDATE delta.`{tmp_path}` SET v = v + 1 WHERE id = 2")
    history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}`").orderBy("version").collect()
    times = [each.timestamp for each in history]
    assert len(times) == 8
    assert all(before < after for before, after in itertools.pairwise(times))


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_spark_needs_no_commit_from_before_our_checkpoint(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    create(spark, tmp_path, {"delta.checkpointInterval": "3", "delta.checkpointPolicy": policy})
    table = lakemark.Table(tmp_path, key="id")
    for turn in range(6):
        table.upsert({"id": [1, 1000 + turn], "v": [50 + turn, turn], "part": ["p0", "p1"]})
        table.migrate()
    expected = read(spark, tmp_path)
    log = tmp_path / "_delta_log"
    checkpoint = json.loads((log / "_last_checkpoint").read_text())["version"]
    assert checkpoint == 6
    for version in range(checkpoint):
        (log / f"{version:020}.json").unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # noqa: SLF001 - there is no other way to the JVM
    assert read(spark, tmp_path) == own(tmp_path) == expected
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = 1")
    del expected[1]
    assert read(spark, tmp_path) == own(tmp_path) == expected


def test_a_column_that_spark_renames_is_found_by_its_id(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path, {"delta.columnMapping.mode": "id"})
    table = lakemark.Table(tmp_path)
    table.create_index("v", progress=False)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` RENAME COLUMN v TO w")
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` ADD COLUMN v STRING")
    spark.sql(f"INSERT INTO delta.`{tmp_path}` (id, w, part, v) VALUES (1000, 5, 'p0', 'new')")
    expected = read(spark, tmp_path)
    assert own(tmp_path) == expected
    assert own(tmp_path, "w = 5") == {key: each for key, each in expected.items() if each["w"] == 5}
    assert own(tmp_path, "v IS NOT NULL") == {1000: expected[1000]}


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_shallow_clone_is_read_and_migrated(
    spark: SparkSession, fast: SparkSession, tmp_path: Path, partitioned: bool
) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    create(spark, source, {"delta.enableDeletionVectors": "true"}, partitioned=partitioned)
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id IN (8, 9)")
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{source}`")
    of_source = read(spark, source)
    expected = read(spark, clone)
    table = lakemark.Table(clone, key="id")
    table.create_index("v", progress=False)
    assert own(clone) == expected == of_source
    assert own(clone, "v = 5") == {key: each for key, each in expected.items() if each["v"] == 5}
    # Spark leaves out files of the other table by the index of the clone.
    nothing = fast.read.format("delta").load(str(clone)).where("v = 5 AND v = 6")
    assert nothing.collect() == []
    assert read(fast, clone) == expected
    table.upsert({"id": [1, 1000], "v": [50, 51], "part": ["p1", "p9"]})
    table.delete([2])
    table.migrate()
    expected |= by_id([row(1, 50, "p1"), row(1000, 51, "p9")])
    del expected[2]
    assert read(spark, clone) == own(clone) == expected
    assert read(spark, source) == own(source) == of_source
    spark.sql(f"UPDATE delta.`{clone}` SET v = 52 WHERE id IN (3, 1000)")
    for key in (3, 1000):
        expected[key] = {**expected[key], "v": 52}
    assert read(spark, clone) == own(clone) == expected


def test_columns_that_spark_widens_are_read_and_migrated(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}` (id BIGINT, n INT, f FLOAT, price DECIMAL(5,2), s STRUCT<x: SMALLINT>) "
        "USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    values = "id, CAST(id % 7 AS INT), CAST(id / 8 AS FLOAT), CAST(id % 9 AS DECIMAL(5,2))"
    struct = "named_struct('x', CAST(id % 5 AS SMALLINT))"
    spark.sql(f"INSERT INTO delta.`{tmp_path}` SELECT {values}, {struct} FROM range(0, {ROWS}, 1, 2)")
    for column, kind in {"n": "BIGINT", "f": "DOUBLE", "price": "DECIMAL(12,4)", "s.x": "INT"}.items():
        spark.sql(f"ALTER TABLE delta.`{tmp_path}` ALTER COLUMN {column} TYPE {kind}")
    wide = "1000, 10000000000, 0.1D, CAST('1234567.8901' AS DECIMAL(12,4)), named_struct('x', 100000)"
    spark.sql(f"INSERT INTO delta.`{tmp_path}` SELECT {wide}")
    expected = read(spark, tmp_path)
    table = lakemark.Table(tmp_path, key="id")
    for column in ("n", "f", "price"):
        assert table.create_index(column, progress=False).coverage == 1.0
    assert own(tmp_path) == expected
    for condition, holds in {
        "n = 3": lambda each: each["n"] == 3,
        "n > 1000000": lambda each: each["n"] > 1_000_000,
        "f = 0.5": lambda each: each["f"] == 0.5,
        "f = 0.1": lambda each: each["f"] == 0.1,
        "price > 7": lambda each: each["price"] > 7,
        "s['x'] >= 4": lambda each: each["s"]["x"] >= 4,
    }.items():
        assert own(tmp_path, condition) == {key: each for key, each in expected.items() if holds(each)}, condition
    table.update({"id": [1, 2], "n": [20_000_000_000, 4]})
    table.migrate()
    expected[1] = {**expected[1], "n": 20_000_000_000}
    expected[2] = {**expected[2], "n": 4}
    assert read(spark, tmp_path) == own(tmp_path) == expected


def test_a_generated_column_of_spark_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    twice = "twice BIGINT GENERATED ALWAYS AS (v * 2)"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` (id BIGINT, v BIGINT, {twice}) USING delta")
    spark.sql(f"INSERT INTO delta.`{tmp_path}` (id, v) SELECT id, id FROM range(10)")
    with pytest.raises(lakemark.UnsupportedError, match="twice"):
        lakemark.Table(tmp_path, key="id")
    assert own(tmp_path) == read(spark, tmp_path)

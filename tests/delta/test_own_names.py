"""Delta tables under their own names: queries use indexes, and give what Delta alone gives."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

import lakemark
from delta_tables import (
    ALL_ROWS,
    CONDITIONS,
    FILES,
    GROUP_ROWS,
    GROUPS,
    asked_together,
    counted_together,
    write_delta,
)
from file_scans import collected, logged, read_of, settings, skipped
from lakemark.exceptions import UnsupportedError
from spark_tables import create_indexes, plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

INDEXED = ("id", "k", "name", "price", "place.x")
BY_NAME = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"


class State(NamedTuple):
    """What has become of a table since its indexes were built."""

    statements: tuple[str, ...]
    conditions: tuple[str, ...] = CONDITIONS
    metadata: tuple[str, ...] = ("_metadata.file_name AS file", "_metadata.file_size AS bytes")


# `{t}` is the table. Conditions that a state adds are about what its statements made.
STATES = {
    "as it was": State(()),
    "vectors": State(
        (
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            "DELETE FROM {t} WHERE id % 7 = 3",
            "UPDATE {t} SET name = 'changed' WHERE k IN (1237, 5)",
        ),
        (*CONDITIONS, "name = 'changed'"),
        ("_metadata.file_name AS file", "_metadata.row_index AS row"),
    ),
    "renamed": State(
        (
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ({BY_NAME})",
            "ALTER TABLE {t} RENAME COLUMN price TO cost",
            "ALTER TABLE {t} RENAME COLUMN place.x TO y",
            "ALTER TABLE {t} DROP COLUMN day",
            "ALTER TABLE {t} ADD COLUMN (price STRING)",
            "INSERT INTO {t} SELECT id + 10000, k, name, cost, place, 'high' FROM {t} WHERE k < 300",
        ),
        (
            *(each for each in CONDITIONS if not any(word in each for word in ("day", "price", "place"))),
            "cost = 1.25",
            "place.y = 7 AND place.town = 'Rom'",
            "price = 'high' AND k = 7",
            "price IS NULL AND k = 7",
        ),
    ),
    "evolved": State(
        (
            "ALTER TABLE {t} ADD COLUMNS (extra INT)",
            "INSERT INTO {t} SELECT id + 10000, k, name, day, price, place, 7 FROM {t} WHERE k < 300",
        ),
        (*CONDITIONS, "extra = 7 AND k = 5", "extra IS NULL AND k = 5"),
    ),
    "restored": State(
        (
            "DELETE FROM {t} WHERE id < 1500",
            "OPTIMIZE {t}",
            "RESTORE TABLE {t} TO VERSION AS OF 0",
        ),
    ),
    "rewritten": State(("DELETE FROM {t} WHERE id = 17", "INSERT INTO {t} SELECT * FROM {t} WHERE k = 1000")),
}


@pytest.mark.parametrize("name", STATES)
def test_rows_are_those_of_delta_alone_and_less_is_read(
    spark: SparkSession, fast: SparkSession, tmp_path: Path, name: str
) -> None:
    state, table = STATES[name], f"own.{name.replace(' ', '_')}"
    folder = write_delta(spark, tmp_path / "t", name.replace(" ", "_"))
    create_indexes(folder, *INDEXED)
    for statement in state.statements:
        spark.sql(statement.format(t=table))
    # Files that came since the build are read whole; then they have indexes, too.
    for build in (False, True):
        if build:
            lakemark.Table(folder).build(progress=False)
        ours, theirs = (
            asked_together(session.table(table), state.conditions, *state.metadata) for session in (fast, spark)
        )
        assert collected(ours) == collected(theirs)
        assert counted_together(fast, table, state.conditions) == counted_together(spark, table, state.conditions)
        assert read_of(ours)[0] < read_of(theirs)[0]
        assert read_of(ours)[1] < read_of(theirs)[1]
        assert skipped(fast.table(table).where("k = 1237")) is not None


# Where this release cannot read the table itself, Delta reads it as ever.
MORE_STATES = {
    "widened": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ALTER TABLE {t} ALTER COLUMN k TYPE BIGINT",
        "INSERT INTO {t} SELECT id + 10000, 5000000000, name, day, price, place FROM {t} WHERE k = 7",
    ),
    "tracked": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "UPDATE {t} SET name = 'changed' WHERE k = 1237",
    ),
}


@pytest.mark.parametrize("name", MORE_STATES)
def test_rows_are_those_of_delta_alone_whatever_the_table_has(
    spark: SparkSession, fast: SparkSession, tmp_path: Path, name: str
) -> None:
    folder = write_delta(spark, tmp_path / "t", name)
    create_indexes(folder, "k", "name")
    for statement in MORE_STATES[name]:
        spark.sql(statement.format(t=f"own.{name}"))
    with suppress(UnsupportedError):
        lakemark.Table(folder).build(progress=False)
    more = ("_metadata.row_id AS row", "_metadata.row_commit_version AS commit") if name == "tracked" else ()
    conditions = (*CONDITIONS, "k = 5000000000")
    ours, theirs = (asked_together(session.table(f"own.{name}"), conditions, *more) for session in (fast, spark))
    assert collected(ours) == collected(theirs)


def test_columns_that_are_mapped_by_id(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    write_delta(spark, tmp_path / "source", "id_source")
    folder = tmp_path / "t"
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"
    spark.sql(f"CREATE TABLE own.by_id USING delta LOCATION '{folder}' {mapped} AS SELECT * FROM own.id_source")
    with suppress(UnsupportedError):
        create_indexes(folder, "k", "name")
    spark.sql("ALTER TABLE own.by_id RENAME COLUMN name TO label")
    conditions = tuple(condition.replace("name", "label") for condition in CONDITIONS)
    ours, theirs = (asked_together(session.table("own.by_id"), conditions) for session in (fast, spark))
    assert collected(ours) == collected(theirs)


def test_partitions_are_delta_s_and_their_files_have_indexes(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    write_delta(spark, tmp_path / "source", "parted_source")
    folder = tmp_path / "t ä"
    spark.sql(
        f"CREATE TABLE own.parted USING delta PARTITIONED BY (ort) LOCATION '{folder}' "
        "AS SELECT *, concat('50% ', place.town) AS ort FROM own.parted_source"
    )
    create_indexes(folder, "k", "name")
    conditions = (*CONDITIONS, "ort = '50% Rom' AND k < 100", "ort <> '50% Oslo' AND name = 'n01237'", "ort IS NULL")
    ours, theirs = (asked_together(session.table("own.parted"), conditions) for session in (fast, spark))
    assert collected(ours) == collected(theirs)
    lookup = fast.table("own.parted").where("k = 1237")
    assert [row.id for row in lookup.collect()] == [1]
    assert read_of(lookup)[1] == 1


@pytest.fixture(scope="module")
def lookups(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`own.lookups`, which stays as it is."""
    folder = write_delta(spark, tmp_path_factory.mktemp("lookups") / "t", "lookups")
    create_indexes(folder, *INDEXED)
    return folder


def test_a_lookup_reads_one_row_group_of_one_file(spark: SparkSession, fast: SparkSession, lookups: Path) -> None:
    for source in ("own.lookups", "spark_catalog.own.lookups", f"delta.`{lookups}`"):
        ours, theirs = (session.sql(f"SELECT id, k, name FROM {source} WHERE k = 1237") for session in (fast, spark))
        assert collected(ours) == collected(theirs) == ["Row(id=1, k=1237, name='n01237')"]
        assert read_of(theirs) == (ALL_ROWS, FILES)
        assert read_of(ours) == (GROUP_ROWS, 1)
        assert skipped(ours) == (FILES * GROUPS - 1, FILES * GROUPS)
        assert skipped(theirs) is None
    frame = fast.read.format("delta").load(str(lookups)).where("k = 1237")
    assert [row.id for row in frame.collect()] == [1]
    assert read_of(frame) == (GROUP_ROWS, 1)


@pytest.mark.parametrize(
    "values",
    [
        {"spark.sql.parquet.enableVectorizedReader": "false"},
        {"spark.sql.files.maxPartitionBytes": "3000", "spark.sql.files.openCostInBytes": "0"},
        {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"},
        {"spark.databricks.delta.deletionVectors.useMetadataRowIndex": "false"},
    ],
    ids=["rows", "splits", "interpreted", "counted"],
)
def test_every_reader_gives_the_rows_of_delta_alone(
    spark: SparkSession, fast: SparkSession, tmp_path: Path, values: dict[str, str], request: pytest.FixtureRequest
) -> None:
    table = f"own.reader_{request.node.callspec.id}"
    folder = write_delta(spark, tmp_path / "t", table.removeprefix("own."))
    create_indexes(folder, "k", "name")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {table} WHERE id % 3 = 0")
    with settings((spark, fast), values):
        ours, theirs = (asked_together(session.table(table), CONDITIONS) for session in (fast, spark))
        assert collected(ours) == collected(theirs)
        assert read_of(ours)[1] < read_of(theirs)[1]


QUERIES = (
    "SELECT name, count(*) AS n FROM own.lookups WHERE k < 20 GROUP BY name",
    "SELECT a.id, b.id FROM own.lookups a JOIN own.lookups b ON a.id = b.k WHERE b.name < 'n00010' AND a.k > 2000",
    "SELECT count(*) FROM own.lookups WHERE id IN (SELECT k FROM own.lookups WHERE name = 'n00017')",
    "SELECT id FROM own.lookups WHERE k = (SELECT max(k) FROM own.lookups WHERE k < 100)",
    "SELECT id, k FROM own.lookups WHERE k > 2900 ORDER BY k DESC LIMIT 5",
    "SELECT count(*), min(id), max(id) FROM own.lookups",
    "WITH few AS (SELECT * FROM own.lookups WHERE k < 50) SELECT count(*) FROM few a JOIN few b ON a.id = b.id",
)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_queries_of_many_scans(spark: SparkSession, fast: SparkSession, lookups: Path, adaptive: str) -> None:
    assert lookups.is_dir()
    with settings((spark, fast), {"spark.sql.adaptive.enabled": adaptive}):
        for query in QUERIES:
            assert collected(fast.sql(query)) == collected(spark.sql(query)), query
        assert skipped(fast.sql(QUERIES[0])) is not None


def test_versions_are_read_with_the_indexes_of_their_files(
    spark: SparkSession, fast: SparkSession, tmp_path: Path
) -> None:
    folder = write_delta(spark, tmp_path / "t", "versions")
    create_indexes(folder, "k", "name")
    for statement in (
        "DELETE FROM own.versions WHERE id = 17",
        "INSERT INTO own.versions SELECT id + 10000, k, name, day, price, place FROM own.versions WHERE k = 5",
        "ALTER TABLE own.versions SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM own.versions WHERE k = 2222",
    ):
        spark.sql(statement)
    versions = [row.version for row in spark.sql("DESCRIBE HISTORY own.versions").collect()]
    assert versions == [4, 3, 2, 1, 0]
    conditions = ("k = 5", "k = 2222", "id = 17 AND k IS NOT NULL", "name LIKE 'n0000%'")

    def at(session: SparkSession, version: int) -> DataFrame:
        return asked_together(session.read.option("versionAsOf", version).table("own.versions"), conditions)

    for version in versions:
        ours, theirs = at(fast, version), at(spark, version)
        assert collected(ours) == collected(theirs), version
        assert read_of(ours)[0] < read_of(theirs)[0], version
    found = fast.sql("SELECT id FROM own.versions VERSION AS OF 0 WHERE k = 2222")
    assert collected(found) != []
    assert skipped(found) is not None


def test_a_frame_sees_what_was_committed_since(spark: SparkSession, fast: SparkSession, tmp_path: Path) -> None:
    folder = write_delta(spark, tmp_path / "t", "moving")
    create_indexes(folder, "k")
    frame = fast.table("own.moving").where("k = 5")
    assert frame.count() == 1
    spark.sql("INSERT INTO own.moving SELECT * FROM own.moving WHERE k = 5")
    assert frame.count() == 2
    spark.sql("DELETE FROM own.moving WHERE k = 5")
    assert frame.count() == 0


def test_a_running_query_asks_the_indexes_once(spark: SparkSession, fast: SparkSession, lookups: Path) -> None:
    assert lookups.is_dir()
    query = "SELECT name, count(*) FROM own.lookups WHERE k < 20 GROUP BY name ORDER BY name"
    with logged(spark) as lines:
        assert len(fast.sql(query).collect()) == 20
    assert sum("rule out" in line for line in lines()) == 1


def test_the_plan_says_what_is_skipped(fast: SparkSession, lookups: Path) -> None:
    assert lookups.is_dir()
    assert "29 of 30 row groups skipped by the index" in plan_of(fast.table("own.lookups").where("k = 1237"))

"""Statements and data frames that change tables: what they mean, that they are made once, and how they fail."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from kills import vacuum_old
from spark_tables import rows, same_rows, write_folder
from test_errors import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Row = tuple[int, str | None, int | None]


def small(start: int = 0, stop: int = 20) -> pa.Table:
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array([("Oslo", "Rom", "Wien", None)[n % 4] for n in ids]),
            "n": pa.array([n * 10 for n in ids], pa.int32()),
        }
    )


def write_parquet(folder: Path) -> None:
    folder.mkdir()
    for part in range(2):
        pq.write_table(small(part * 10, part * 10 + 10), folder / f"part-{part}.parquet", row_group_size=4)


def write_delta(folder: Path) -> None:
    for part in range(2):
        deltalake.write_deltalake(folder, small(part * 10, part * 10 + 10), mode="append")


KINDS: dict[str, Callable[[Path], None]] = {"folder": write_parquet, "delta": write_delta}


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    KINDS[request.param](folder)
    lakemark.Table(folder, key="id")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_parquet(tmp_path / "t")
    lakemark.Table(tmp_path / "t", key="id")
    return tmp_path / "t"


@pytest.fixture(autouse=True)
def nothing_stays_staged(tmp_path: Path) -> Iterator[None]:
    """Whatever became of a statement, its tasks have left no file."""
    yield
    assert staged(tmp_path) == []


def staged(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("updates/*") if file.suffix == ".arrows" or file.name.startswith(".tmp-")]


def before() -> dict[int, Row]:
    return {row["id"]: (row["id"], row["city"], row["n"]) for row in small().to_pylist()}


def of_python(path: Path) -> dict[int, Row]:
    found = pa.table(lakemark.Table(path).scan()).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["id"], row["city"], row["n"]) for row in found}


def check(spark: SparkSession, path: Path, expected: dict[int, Row]) -> None:
    """The same session sees it, and so do others, now and once it is in the data files."""
    found = [tuple(row) for row in spark.read.format("lakemark").load(str(path)).collect()]
    assert sorted(found) == sorted(expected.values())
    assert of_python(path) == expected


def finally_migrated(spark: SparkSession, path: Path, expected: dict[int, Row]) -> None:
    check(spark, path, expected)
    lakemark.Table(path).migrate(progress=False)
    check(spark, path, expected)


def test_insert(spark: SparkSession, path: Path) -> None:
    spark.sql(f"INSERT INTO lm.`{path}` VALUES (100, 'Bern', 7), (101, NULL, NULL)")
    spark.sql(f"INSERT INTO lm.`{path}` (n, id) SELECT CAST(id AS INT), id + 200 FROM range(0, 5000, 1, 3)")
    expected = before() | {100: (100, "Bern", 7), 101: (101, None, None)}
    expected |= {n + 200: (n + 200, None, n) for n in range(5000)}
    finally_migrated(spark, path, expected)


def test_a_key_that_is_there_is_not_inserted_and_nothing_else_is(spark: SparkSession, path: Path) -> None:
    text = failure(lambda: spark.sql(f"INSERT INTO lm.`{path}` SELECT id + 19, 'x', 1 FROM range(0, 100, 1, 4)"))
    assert "LakemarkException$AlreadyExists" in text
    assert "id = 19" in text
    # In two tasks.
    text = failure(lambda: spark.sql(f"INSERT INTO lm.`{path}` SELECT id % 50 + 100, 'x', 1 FROM range(0, 100, 1, 2)"))
    assert "LakemarkException$InvalidInput" in text
    assert "stands in rows" in text
    check(spark, path, before())


def test_update_and_delete(spark: SparkSession, path: Path) -> None:
    table = f"lm.`{path}`"
    spark.sql(f"UPDATE {table} SET n = n + 1, city = upper(city) WHERE id IN (3, 4, 15) OR n = 60")
    expected = before()
    for key in (3, 4, 6, 15):
        _, city, n = expected[key]
        expected[key] = (key, city.upper() if city else None, n + 1)
    check(spark, path, expected)
    spark.sql(f"DELETE FROM {table} WHERE city = 'Rom' AND n > 100")
    gone = [key for key, (_, city, n) in expected.items() if city == "Rom" and n > 100]
    assert gone == [13, 17]
    for key in gone:
        del expected[key]
    check(spark, path, expected)
    # Conditions that are NULL choose nothing; a subquery chooses what it says.
    spark.sql(f"DELETE FROM {table} WHERE city <> 'Rom' AND id IN (SELECT id + 1 FROM {table} WHERE city IS NULL)")
    gone = [key for key in expected if key - 1 in expected and expected[key - 1][1] is None and expected[key][1]]
    gone = [key for key in gone if expected[key][1] != "Rom"]
    assert gone == [4, 8, 12, 16]
    for key in gone:
        del expected[key]
    finally_migrated(spark, path, expected)
    spark.sql(f"DELETE FROM {table}")
    finally_migrated(spark, path, {})


def test_update_of_the_key_moves_rows(spark: SparkSession, path: Path) -> None:
    # Each row takes the key that the next one gives up.
    spark.sql(f"UPDATE lm.`{path}` SET id = id + 1 WHERE id >= 15")
    expected = {row[0]: row for row in before().values() if row[0] < 15}
    expected |= {n + 1: (n + 1, *before()[n][1:]) for n in range(15, 20)}
    finally_migrated(spark, path, expected)
    text = failure(lambda: spark.sql(f"UPDATE lm.`{path}` SET id = 3 WHERE id = 7"))
    assert "LakemarkException$AlreadyExists" in text
    text = failure(lambda: spark.sql(f"UPDATE lm.`{path}` SET id = 300 WHERE id < 5"))
    assert "LakemarkException$InvalidInput" in text
    check(spark, path, expected)


def changes(spark: SparkSession, changed: list[Row]) -> None:
    spark.createDataFrame(changed, "id BIGINT, city STRING, n INT").repartition(3).createOrReplaceTempView("changes")


def test_merge_with_every_clause(spark: SparkSession, path: Path) -> None:
    changes(spark, [(1, "a", 1), (2, None, 2), (3, "gone", 0), (5, "same", -1), (50, "new", 50), (51, "not", -1)])
    spark.sql(f"""
        MERGE INTO lm.`{path}` AS t USING changes AS c ON t.id = c.id
        WHEN MATCHED AND c.city = 'gone' THEN DELETE
        WHEN MATCHED AND c.n >= 0 THEN UPDATE SET city = c.city, n = t.n + c.n
        WHEN NOT MATCHED AND c.n >= 0 THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.id = 18 THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.id > 15 THEN UPDATE SET city = 'left'
    """)
    expected = before()
    expected |= {1: (1, "a", 11), 2: (2, None, 22), 50: (50, "new", 50)}
    expected |= {n: (n, "left", n * 10) for n in (16, 17, 19)}
    del expected[3], expected[18]
    finally_migrated(spark, path, expected)


def test_merge_that_only_inserts_or_moves(spark: SparkSession, path: Path) -> None:
    changes(spark, [(4, "a", 1), (60, "b", 2)])
    spark.sql(f"MERGE INTO lm.`{path}` t USING changes c ON t.id = c.id WHEN NOT MATCHED THEN INSERT *")
    expected = before() | {60: (60, "b", 2)}
    check(spark, path, expected)
    # The row that moves away makes room for one that is inserted.
    changes(spark, [(4, "moved", 400), (70, "new", 4)])
    spark.sql(f"""
        MERGE INTO lm.`{path}` t USING changes c ON t.id = c.id
        WHEN MATCHED THEN UPDATE SET id = c.n, city = c.city
        WHEN NOT MATCHED THEN INSERT (id, city) VALUES (c.n, c.city)
    """)
    del expected[4]
    expected |= {400: (400, "moved", 40), 4: (4, "new", None)}
    finally_migrated(spark, path, expected)


def test_merge_of_several_matches(spark: SparkSession, path: Path) -> None:
    changes(spark, [(4, "a", 1), (4, "b", 2), (5, "c", 3)])
    merge = f"MERGE INTO lm.`{path}` t USING changes c ON t.id = c.id WHEN MATCHED"
    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(f"{merge} THEN UPDATE SET city = c.city")
    check(spark, path, before())
    # It is the same row that is deleted, however often it is found.
    spark.sql(f"{merge} THEN DELETE")
    check(spark, path, {key: row for key, row in before().items() if key not in (4, 5)})


def test_statements_that_change_nothing(spark: SparkSession, path: Path) -> None:
    sequence = lakemark.Table(path).updates.sequence
    changes(spark, [])
    for statement in (
        "INSERT INTO {} SELECT * FROM changes",
        "UPDATE {} SET n = 1 WHERE id = 1000",
        "UPDATE {} SET n = 1 WHERE false",
        "DELETE FROM {} WHERE id > 1000",
        "DELETE FROM {} WHERE id IS NULL",
        "DELETE FROM {} WHERE city = NULL",
        "MERGE INTO {} t USING changes c ON t.id = c.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    ):
        spark.sql(statement.format(f"lm.`{path}`"))
    check(spark, path, before())
    assert lakemark.Table(path).updates.sequence == sequence


def frame(spark: SparkSession, changed: list[Row]) -> DataFrame:
    return spark.createDataFrame(changed, "id BIGINT, city STRING, n INT")


def save(changed: DataFrame, path: Path, **options: object) -> None:
    writer = changed.write.format("lakemark").mode("append")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save(str(path))


def test_data_frames(spark: SparkSession, path: Path) -> None:
    expected = before()
    save(frame(spark, [(100, "a", 1)]), path)
    expected[100] = (100, "a", 1)
    save(frame(spark, [(100, "b", 2), (3, None, 3)]), path, operation="upsert")
    expected |= {100: (100, "b", 2), 3: (3, None, 3)}
    # Columns that are missing are NULL in new rows, stay in those that are updated, and do not matter where rows go.
    save(frame(spark, [(101, "c", 0)]).drop("n"), path, operation="insert")
    expected[101] = (101, "c", None)
    save(frame(spark, [(4, "x", 0), (4000, "y", 0)]).select("city", "id"), path, operation="update")
    expected[4] = (4, "x", 40)
    save(frame(spark, [(5, "x", 0), (5, "y", 0), (5000, "y", 0)]), path, operation="delete")
    save(spark.range(6, 8), path, operation="DELETE")
    for key in (5, 6, 7):
        del expected[key]
    check(spark, path, expected)
    frame(spark, [(8, "z", 8)]).writeTo(f"lm.`{path}`").option("operation", "upsert").append()
    frame(spark, [(102, "q", 9)]).write.insertInto(f"lm.`{path}`")
    expected |= {8: (8, "z", 8), 102: (102, "q", 9)}
    finally_migrated(spark, path, expected)


def test_data_frames_that_do_not_fit(spark: SparkSession, folder: Path) -> None:
    ours = frame(spark, [(100, "a", 1)])
    for change, kind, says in (
        (lambda: save(ours.withColumn("moon", ours.n), folder, operation="upsert"), "SchemaMismatch", "no column moon"),
        (lambda: save(ours.drop("id"), folder, operation="upsert"), "InvalidInput", "lack a column of the key (id)"),
        (lambda: save(ours.select("id"), folder, operation="update"), "InvalidInput", "names no column beside the key"),
        (
            lambda: save(ours.selectExpr("id", "1.5D AS n"), folder, operation="upsert"),
            "SchemaMismatch",
            "row 0 has 1.5 for n",
        ),
        (
            lambda: save(ours.selectExpr("CAST(NULL AS BIGINT) AS id", "n"), folder, operation="upsert"),
            "InvalidInput",
            "has no value for id",
        ),
        (lambda: save(ours, folder, operation="replace"), "InvalidInput", "must be insert, upsert, update or delete"),
        (
            lambda: save(ours, folder, opertaion="upsert"),
            "InvalidInput",
            "there are path, store, use_index, version, max_staleness, operation, txn_app_id and txn_version",
        ),
        (lambda: save(ours, folder, txn_app_id="x"), "InvalidInput", "go together"),
        (lambda: save(ours, folder, txn_app_id="x", txn_version=-1), "InvalidInput", "whole number from 0 on"),
        (lambda: save(ours, folder, version=1), "InvalidInput", "name it without a version"),
    ):
        text = failure(change)
        assert f"LakemarkException${kind}" in text
        assert says in text
    with pytest.raises(Exception, match="NOT_NULL_ASSERT_VIOLATION"):
        spark.sql(f"INSERT INTO lm.`{folder}` SELECT NULL, 'x', 1")
    check(spark, folder, before())


def test_what_is_not_offered_is_refused(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    ours = frame(spark, [(100, "a", 1)])
    for statement, says in (
        (lambda: spark.sql(f"INSERT OVERWRITE lm.`{folder}` VALUES (1, 'x', 1)"), "does not support"),
        (lambda: spark.sql(f"TRUNCATE TABLE lm.`{folder}`"), "does not support"),
        (lambda: ours.write.format("lakemark").mode("overwrite").save(str(folder)), "does not support"),
        (lambda: ours.write.format("lakemark").save(str(folder)), "(?i)mode"),
        (lambda: ours.writeTo(f"lm.`{folder}`").overwritePartitions(), "does not support"),
    ):
        with pytest.raises(Exception, match=says):
            statement()
    check(spark, folder, before())
    plain = tmp_path / "plain"
    write_parquet(plain)
    for statement in (
        f"INSERT INTO lm.`{plain}` VALUES (1, 'x', 1)",
        f"UPDATE lm.`{plain}` SET n = 1",
        f"DELETE FROM lm.`{plain}`",
    ):
        text = failure(lambda statement=statement: spark.sql(statement))
        assert "LakemarkException$InvalidInput" in text
        assert "has no key, which tells changed rows apart" in text
    text = failure(lambda: spark.sql(f"DELETE FROM lm.`{folder}$indexes`"))
    assert "does not support" in text or "cannot be" in text


def touch(spark: SparkSession, path: Path, change: str) -> None:
    """Lets the statement that calls `touch` change the table while its tasks run."""
    at = str(path)

    def changed(value: int) -> int:
        import lakemark

        if change == "upsert":
            lakemark.Table(at).upsert([{"id": 3, "city": "other", "n": -3}])
        elif change == "migrate":
            lakemark.Table(at).upsert([{"id": 900, "city": "other", "n": -3}])
            lakemark.Table(at).migrate(progress=False)
        return value

    spark.udf.register("touch", changed, "int")


def test_a_key_that_somebody_changes_meanwhile_is_a_conflict(spark: SparkSession, path: Path) -> None:
    touch(spark, path, "upsert")
    expected = before() | {3: (3, "other", -3)}
    changes(spark, [(3, "a", 1), (60, "b", 2)])
    for statement in (
        "UPDATE {} SET n = touch(n) WHERE id IN (2, 3)",
        "DELETE FROM {} WHERE touch(n) = n AND id < 4",
        """MERGE INTO {} t USING changes c ON t.id = c.id AND touch(c.n) = c.n
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *""",
    ):
        text = failure(lambda statement=statement: spark.sql(statement.format(f"lm.`{path}`")))
        assert "LakemarkException$Conflict" in text
        assert "id = 3 was changed by somebody else" in text
        check(spark, path, expected)
    # Nobody else changes these; an insert depends on no row.
    spark.sql(f"UPDATE lm.`{path}` SET n = touch(n) + 1 WHERE id IN (4, 5)")
    spark.sql(f"INSERT INTO lm.`{path}` SELECT 70, 'x', touch(7)")
    expected |= {4: (4, "Oslo", 41), 5: (5, "Rom", 51), 70: (70, "x", 7)}
    finally_migrated(spark, path, expected)


def test_a_migration_meanwhile_is_a_conflict(spark: SparkSession, folder: Path) -> None:
    touch(spark, folder, "migrate")
    text = failure(lambda: spark.sql(f"UPDATE lm.`{folder}` SET n = touch(n) WHERE id = 3"))
    assert "LakemarkException$Conflict" in text
    check(spark, folder, before() | {900: (900, "other", -3)})


def fail(spark: SparkSession, at: Path, *, always: bool) -> None:
    """Lets `fail` raise at 400, in the first attempt of a task or in all of them."""
    marker = at / "failed"

    def failing(value: int) -> int:
        if value == 400 and (always or not marker.exists()):
            marker.touch()
            raise ValueError("asked for by the test")
        return value

    spark.udf.register("fail", failing, "int")


def test_a_task_that_is_tried_again_writes_once(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    fail(spark, tmp_path, always=False)
    spark.sql(f"INSERT INTO lm.`{path}` SELECT id + 1000, 'x', fail(CAST(id AS INT)) FROM range(0, 1000, 1, 2)")
    assert (tmp_path / "failed").exists()
    check(spark, path, before() | {n + 1000: (n + 1000, "x", n) for n in range(1000)})


def test_a_statement_whose_task_fails_changes_nothing(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    fail(spark, tmp_path, always=True)
    statement = f"INSERT INTO lm.`{path}` SELECT id + 1000, 'x', fail(CAST(id AS INT)) FROM range(0, 5000, 1, 4)"
    with pytest.raises(Exception, match="asked for by the test"):
        spark.sql(statement)
    check(spark, path, before())
    vacuum_old(spark, path)
    check(spark, path, before())


def test_calls_with_a_number_are_made_once(spark: SparkSession, path: Path) -> None:
    for number, value, seen in ((0, "a", "a"), (0, "b", "a"), (1, "c", "c"), (0, "d", "c")):
        save(frame(spark, [(3, value, 1)]), path, operation="upsert", txn_app_id="job", txn_version=number)
        check(spark, path, before() | {3: (3, seen, 1)})
    spark.sql(f"INSERT INTO lm.`{path}` WITH (txn_app_id = 'job', txn_version = '1') VALUES (9, 'never', 1)")
    spark.sql(f"INSERT INTO lm.`{path}` WITH (txn_app_id = 'job', txn_version = '2') VALUES (70, 'once', 1)")
    check(spark, path, before() | {3: (3, "c", 1), 70: (70, "once", 1)})


def test_statements_with_a_number_are_made_once(spark: SparkSession, path: Path) -> None:
    def once(number: int, statement: str) -> None:
        spark.conf.set("spark.lakemark.txn_app_id", "job")
        spark.conf.set("spark.lakemark.txn_version", number)
        spark.sql(statement)
        for setting in ("txn_app_id", "txn_version"):
            assert spark.conf.get(f"spark.lakemark.{setting}", None) is None

    expected = before()
    touched = f"MERGE INTO lm.`{path}` t USING (SELECT explode(array(3L, 90L)) AS id) s ON t.id = s.id "
    touched += "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 1)"
    for number, statement, change in (
        (1, f"UPDATE lm.`{path}` SET n = n + 1 WHERE id = 3", {3: (3, None, 31)}),
        (2, touched, {3: (3, None, 32), 90: (90, None, 1)}),
        (3, f"INSERT INTO lm.`{path}` (id, n) VALUES (91, 5)", {91: (91, None, 5)}),
        (4, f"DELETE FROM lm.`{path}` WHERE n > 180", {19: None}),
    ):
        expected = {key: row for key, row in (expected | change).items() if row is not None}
        for asked in (number, number, number - 1):
            once(asked, statement)
            check(spark, path, expected)
    # Unset by the statement that they were for: the next one is another one.
    for n in (7, 8):
        spark.sql(f"UPDATE lm.`{path}` SET n = {n} WHERE id = 3")
        check(spark, path, expected | {3: (3, None, n)})


def test_a_number_counts_for_the_next_statement_that_is_made(spark: SparkSession, folder: Path) -> None:
    spark.conf.set("spark.lakemark.txn_version", "5")
    assert "spark.lakemark.txn_app_id and spark.lakemark.txn_version go together" in failure(
        lambda: spark.sql(f"DELETE FROM lm.`{folder}` WHERE id = 3")
    )
    spark.conf.set("spark.lakemark.txn_app_id", "job")
    assert "is there already" in failure(lambda: spark.sql(f"INSERT INTO lm.`{folder}` VALUES (3, 'x', 1)"))
    # A write with a name of its own leaves the settings to the next one.
    save(frame(spark, [(60, "own", 1)]), folder, txn_app_id="another", txn_version=1)
    spark.sql(f"INSERT INTO lm.`{folder}` VALUES (61, 'x', 1)")
    spark.conf.set("spark.lakemark.txn_app_id", "job")
    spark.conf.set("spark.lakemark.txn_version", "five")
    assert "spark.lakemark.txn_version is five" in failure(lambda: spark.sql(f"DELETE FROM lm.`{folder}`"))
    spark.conf.set("spark.lakemark.txn_version", "5")
    spark.sql(f"DELETE FROM lm.`{folder}`")
    check(spark, folder, before() | {60: (60, "own", 1), 61: (61, "x", 1)})


def test_streams_upsert_each_batch_once(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()

    def upsert(batch: DataFrame, number: int) -> None:
        # As after a crash: the batch was written, and Spark does not know.
        for _ in range(2):
            save(batch, path, operation="upsert", txn_app_id="stream", txn_version=number)

    def run(checkpoint: str) -> None:
        stream = spark.readStream.schema("id BIGINT, city STRING, n INT").option("maxFilesPerTrigger", 1)
        query = stream.parquet(str(source)).writeStream.foreachBatch(upsert).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()

    for number in range(3):
        changed = pa.table(
            {"id": [3, 50 + number], "city": [f"v{number}"] * 2, "n": pa.array([number] * 2, pa.int32())}
        )
        pq.write_table(changed, source / f"{number}.parquet")
        run("checkpoint")
        expected = before() | {3: (3, f"v{number}", number)}
        check(spark, path, expected | {50 + n: (50 + n, f"v{n}", n) for n in range(number + 1)})
    sequence = lakemark.Table(path).updates.sequence
    # Another checkpoint numbers from 0 on again: all of these were made before.
    run("anew")
    assert lakemark.Table(path).updates.sequence == sequence
    assert of_python(path)[3] == (3, "v2", 2)


def test_every_type(spark: SparkSession, tmp_path: Path) -> None:
    path = write_folder(tmp_path / "t", files=1)
    lakemark.Table(path, key="id")
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(rows(5000, 5500), other / "a.parquet")
    added = spark.read.parquet(str(other))
    save(added, path)
    ours, theirs = spark.read.format("lakemark").load(str(path)), spark.read.parquet(str(path)).union(added)
    assert same_rows(ours, theirs)
    # Rows go through Spark and come back as they were.
    spark.sql(f"UPDATE lm.`{path}` SET k = k WHERE id % 3 = 0 AND place.x >= 0")
    assert lakemark.Table(path).updates.sequence == 2
    assert same_rows(ours, theirs)
    save(ours.where("id < 5100"), path, operation="upsert")
    assert same_rows(spark.read.format("lakemark").load(str(path)), theirs)
    lakemark.Table(path).migrate(progress=False)
    assert same_rows(spark.read.format("lakemark").load(str(path)), theirs)


def test_types_that_spark_has_another_name_for(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark reads as another type is written back as the table's own."""
    day, moment = dt.date(1969, 7, 20), dt.datetime(1969, 7, 20, 20, 17, 40, 123456)  # noqa: DTZ001 - it is a local time
    schema = pa.schema(
        [
            ("key", pa.uint32()),
            ("small", pa.uint8()),
            ("large", pa.uint64()),
            ("text", pa.large_string()),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("fixed", pa.binary(3)),
            ("wide", pa.decimal128(38, 10)),
            ("nano", pa.timestamp("ns")),
            ("zoned", pa.timestamp("ms", "Europe/Vienna")),
            ("day", pa.date64()),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("deep", pa.list_(pa.struct([("a", pa.list_(pa.int16())), ("b", pa.decimal128(5, 2))]))),
        ]
    )

    def row(key: int) -> dict[str, object]:
        return {
            "key": key,
            "small": 255,
            "large": 2**64 - 1,
            "text": "ü" * key,
            "kind": "a",
            "fixed": b"\x00\xff\x01",
            "wide": decimal.Decimal("-1234567890123456789012345678.0123456789"),
            "nano": moment,
            "zoned": dt.datetime(2024, 3, 31, 0, 59, 59, 999000, tzinfo=dt.timezone.utc),
            "day": day,
            "map": [("x", 1), ("y", None)],
            "deep": [{"a": [1, None], "b": decimal.Decimal("-0.01")}, None],
        }

    path = tmp_path / "t"
    path.mkdir()
    nulls = dict.fromkeys(schema.names) | {"key": 7}
    pq.write_table(pa.Table.from_pylist([row(1), row(2), nulls], schema), path / "a.parquet")
    lakemark.Table(path, key="key")
    before = pa.table(lakemark.Table(path).scan())
    spark.sql(f"UPDATE lm.`{path}` SET key = key + 10")
    moved = pa.table(lakemark.Table(path).scan()).sort_by("key")
    assert moved.schema == before.schema
    expected = before.set_column(0, before.field(0), pa.array([11, 12, 17], pa.uint32()))
    assert moved == expected
    text = failure(lambda: spark.sql(f"UPDATE lm.`{path}` SET small = 256 WHERE key = 11"))
    assert "LakemarkException$SchemaMismatch" in text
    assert pa.table(lakemark.Table(path).scan()).sort_by("key") == expected


def test_keys_of_several_columns_and_names_that_need_quotes(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for zone in ("a", "ü"):
        (path / f"zone={zone}").mkdir(parents=True)
        pq.write_table(
            pa.table({"no. 1": ["x", "y"], "a `b`": [1, 2], "Wert": [1.5, None]}), path / f"zone={zone}" / "f.parquet"
        )
    lakemark.Table(path, key=["zone", "no. 1", "a `b`"])
    table = f"lm.`{path}`"
    spark.sql(f"UPDATE {table} SET wert = 7, `no. 1` = 'z' WHERE zone = 'ü' AND `a ``b``` = 1")
    spark.sql(f"DELETE FROM {table} WHERE `no. 1` = 'y' AND zone = 'a'")
    spark.sql(f"UPDATE {table} SET zone = 'new' WHERE zone = 'a'")
    spark.sql(f"""
        MERGE INTO {table} t USING (SELECT 'ü' AS zone, 'y' AS no, 2 AS b UNION ALL SELECT 'b', 'q', 3) s
        ON t.zone = s.zone AND t.`no. 1` = s.no AND t.`a ``b``` = s.b
        WHEN MATCHED THEN UPDATE SET Wert = -1
        WHEN NOT MATCHED THEN INSERT (zone, `no. 1`, `a ``b```) VALUES (zone, no, b)
    """)
    expected = {("x", 1, 1.5, "new"), ("z", 1, 7.0, "ü"), ("y", 2, -1.0, "ü"), ("q", 3, None, "b")}
    for _ in range(2):
        found = spark.table(table).select("`no. 1`", "`a ``b```", "Wert", "zone").collect()
        assert {tuple(row) for row in found} == expected
        lakemark.Table(path).migrate(progress=False)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_both_ways_of_casting(spark: SparkSession, folder: Path, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        spark.sql(f"UPDATE lm.`{folder}` SET n = CAST('12' AS INT) WHERE id = 1")
        spark.sql(f"INSERT INTO lm.`{folder}` VALUES (30L, 'x', 3000000000 - 2999999999)")
        changed = before() | {1: (1, "Rom", 12), 30: (30, "x", 1)}
        overflow = f"UPDATE lm.`{folder}` SET n = 3000000000 WHERE id = 1"
        # Rows are assigned by the rules of the standard either way.
        with pytest.raises(Exception, match=r"(?i)overflow"):
            spark.sql(overflow)
        with pytest.raises(Exception, match=r"(?i)cast|incompatible"):
            spark.sql(f"INSERT INTO lm.`{folder}` VALUES (31, 'x', DATE '2024-01-01')")
        check(spark, folder, changed)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_tables_of_sparks_own_catalog(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE written USING lakemark LOCATION '{folder}'")
    try:
        spark.sql("INSERT INTO written VALUES (100, 'a', 1)")
        spark.sql("UPDATE written SET city = 'b' WHERE id IN (100, 3)")
        spark.sql("DELETE FROM written WHERE id = 4")
        expected = before() | {100: (100, "b", 1), 3: (3, "b", 30)}
        del expected[4]
        check(spark, folder, expected)
        assert spark.table("written").count() == len(expected)
    finally:
        spark.sql("DROP TABLE written")
    late = tmp_path / "late"
    write_parquet(late)
    spark.sql(f"CREATE TABLE late USING lakemark LOCATION '{late}'")
    try:
        lakemark.Table(late, key="id")
        spark.sql("INSERT INTO late VALUES (100, 'a', 1)")
        text = failure(lambda: spark.sql("DELETE FROM late WHERE id = 4"))
        assert "LakemarkException$InvalidInput" in text
        assert "drop the name and create it again" in text
    finally:
        spark.sql("DROP TABLE late")


def test_a_key_without_a_value_that_others_write_is_no_value(spark: SparkSession, folder: Path) -> None:
    pq.write_table(small(20, 21).set_column(0, "id", pa.array([None], pa.int64())), folder / "other.parquet")
    text = failure(spark.read.format("lakemark").load(str(folder)).collect)
    assert "LakemarkException$Corrupt" in text
    assert "without a value for id, which is part of the table's key" in text

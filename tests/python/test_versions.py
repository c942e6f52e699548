"""Time travel: old versions of Delta tables and folders, and what they say when they are gone."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path


def rows(first: int, count: int = 100) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "v": [n % 7 for n in ids]})


def by_id(table: pa.Table) -> dict[int, dict[str, Any]]:
    found = {row["id"]: row for row in table.select(["id", "v"]).to_pylist()}
    assert len(found) == table.num_rows
    return found


def of_delta(path: Path, version: int) -> dict[int, dict[str, Any]]:
    return by_id(deltalake.DeltaTable(str(path), version=version).to_pyarrow_table())


def test_a_version_of_a_delta_table_has_what_delta_rs_reads(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(0))
    deltalake.write_deltalake(str(tmp_path), rows(100), mode="append")
    table = lakemark.Table(tmp_path, key="id")
    table.create_index("v", progress=False)
    table.upsert({"id": [1, 1000], "v": [-1, -2]})
    table.delete([2])
    table.migrate()
    table.delete([3])
    deltalake.write_deltalake(str(tmp_path), rows(200), mode="append")
    for version in range(4):
        old = lakemark.Table(tmp_path, version=version)
        assert by_id(old.scan().to_arrow()) == of_delta(tmp_path, version), version
        assert old.snapshot.delta_version == version
        assert old.count("v = 3") == sum(row["v"] == 3 for row in of_delta(tmp_path, version).values())
    # What is buffered belongs to no version, and to the newest state.
    assert table.count("id = 3") == 0
    assert lakemark.Table(tmp_path, version=3).count("id = 3") == 1
    history = table.history()
    assert [version.version for version in history] == [3, 2, 1, 0]
    assert [version.files_added for version in history] == [1, 2, 1, 1]
    assert [version.rows for version in history] == [100, 100, 100, 100]
    assert history[0].operation == "WRITE"
    assert history[0].time is not None
    assert history[0].time.year >= 2024


def test_a_vacuumed_version_is_expired(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(0))
    deltalake.write_deltalake(str(tmp_path), rows(100), mode="overwrite")
    deltalake.write_deltalake(str(tmp_path), rows(200), mode="append")
    delta = deltalake.DeltaTable(str(tmp_path))
    delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(lakemark.SnapshotExpiredError, match=r"version 0 of .* has expired.* read: [12]"):
        lakemark.Table(tmp_path, version=0)
    with pytest.raises(lakemark.NotFoundError, match=r"has no version 99: the newest is \d+"):
        lakemark.Table(tmp_path, version=99)
    assert by_id(lakemark.Table(tmp_path, version=1).scan().to_arrow()) == by_id(rows(100))


def test_a_version_without_its_log_is_expired(tmp_path: Path) -> None:
    for number in range(4):
        deltalake.write_deltalake(str(tmp_path), rows(number * 100), mode="append")
    delta = deltalake.DeltaTable(str(tmp_path))
    delta.create_checkpoint()
    for number in range(3):
        (tmp_path / "_delta_log" / f"{number:020}.json").unlink()
    with pytest.raises(lakemark.SnapshotExpiredError, match=r"the Delta log of it is gone.* read: 3"):
        lakemark.Table(tmp_path, version=1)
    assert lakemark.Table(tmp_path, version=3).count() == 400


def test_versions_of_a_folder_in_python_and_sql(tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "a.parquet")
    table = lakemark.Table(tmp_path, key="id")
    declared = table.history(1)[0].version
    table.delete(list(range(10)))
    table.flush()
    flushed = table.history(1)[0].version
    table.upsert({"id": [0, 500], "v": [1, 2]})
    table.migrate()
    assert [table.count(), table.updates is not None] == [92, True]
    old = lakemark.Table(tmp_path, version=flushed)
    assert (old.count(), old.version, old.updates) == (90, flushed, None)
    assert repr(old).endswith(f", version={flushed})")
    session = lakemark.connect()
    session.sql(f"CREATE EXTERNAL TABLE was STORED AS LAKEMARK LOCATION '{tmp_path}' OPTIONS (version '{declared}')")
    session.table(tmp_path, name="is")
    session.table(tmp_path, name="between", version=flushed)
    counts = session.sql(
        'SELECT (SELECT count(*) FROM was) AS a, (SELECT count(*) FROM between) AS b, (SELECT count(*) FROM "is") AS c'
    )
    assert counts.to_arrow().to_pylist() == [{"a": 100, "b": 90, "c": 92}]
    changes = ["DELETE FROM was WHERE id = 5000", "INSERT INTO was VALUES (7000, 1)", "CREATE INDEX i ON was (v)"]
    for statement in changes:
        with pytest.raises(lakemark.InvalidInputError, match="can only be read; open it without a version"):
            session.sql(statement)
    counts = session.sql(
        f'SELECT count(*) AS n, (SELECT count(*) FROM "is" FOR VERSION AS OF {declared}) AS a, '
        f'(SELECT count(*) FROM "is") AS b FROM "is" VERSION AS OF {flushed} x WHERE x.v < 7'
    )
    assert counts.to_arrow().to_pylist() == [{"n": 90, "a": 100, "b": 92}]
    with pytest.raises(lakemark.InvalidInputError, match="opened at version"):
        old.upsert({"id": [1], "v": [1]})


def test_a_moment_in_sql_is_the_newest_version_until_then(tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "a.parquet")
    table = lakemark.Table(tmp_path, key="id")
    for step in range(3):
        time.sleep(0.01)
        table.delete([step])
        table.flush()
    session = lakemark.connect()
    session.table(tmp_path, name="t")
    for version in table.history():
        assert version.time is not None
        expected = lakemark.Table(tmp_path, version=version.version).count()
        zone = dt.timezone(dt.timedelta(hours=-3))
        for moment in (version.time, version.time.astimezone(zone)):
            found = session.sql(f"SELECT count(*) AS n FROM t TIMESTAMP AS OF '{moment.isoformat()}'")
            assert found.to_arrow().to_pylist() == [{"n": expected}]
    with pytest.raises(lakemark.SnapshotExpiredError, match=r"no version that is so old; the oldest .* is 1 of 20"):
        session.sql("SELECT count(*) FROM t TIMESTAMP AS OF '2020-01-01'")
    with pytest.raises(lakemark.InvalidInputError, match="is no timestamp such as"):
        session.sql("SELECT count(*) FROM t TIMESTAMP AS OF 'yesterday'")


@pytest.mark.parametrize("dialect", ["generic", "databricks", "bigquery", "snowflake", "mssql", "postgresql"])
def test_every_dialect_reads_the_version_that_it_is_asked_for(tmp_path: Path, dialect: str) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(0))
    deltalake.write_deltalake(str(tmp_path), rows(100), mode="append")
    session = lakemark.connect()
    session.table(tmp_path, name="t")
    session.sql(f"SET datafusion.sql_parser.dialect = '{dialect}'")
    counts = [session.sql(f"SELECT count(*) AS n FROM t VERSION AS OF {version}").to_arrow() for version in range(2)]
    assert [count.to_pylist() for count in counts] == [[{"n": 100}], [{"n": 200}]]
    # What only some dialects know, and the planner drops, is refused and not answered from the newest rows.
    for clause in ("TIMESTAMP AS OF now()", "FOR SYSTEM_TIME AS OF now()", "AT(VERSION => 0)"):
        with pytest.raises(lakemark.LakemarkError):
            session.sql(f"SELECT count(*) FROM t {clause}").to_arrow()


def test_a_folder_is_published_for_every_reader(tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "a.parquet")
    pq.write_table(rows(100), tmp_path / "b.parquet")
    table = lakemark.Table(tmp_path, key="id")
    table.update({"id": [1, 2], "v": [-1, -2]})
    table.insert({"id": [1000], "v": [3]})
    table.delete([3])
    before = table.history(1)[0].version
    table.migrate(publish=True)
    expected = by_id(rows(0, 200))
    expected[1]["v"], expected[2]["v"], expected[1000] = -1, -2, {"id": 1000, "v": 3}
    del expected[3]
    assert by_id(pq.read_table(tmp_path)) == expected
    assert by_id(table.scan().to_arrow()) == expected
    assert [(tmp_path / name).exists() for name in ("a.parquet", "b.parquet")] == [False, True]
    assert len(list(tmp_path.glob(".*"))) == 0
    assert lakemark.Table(tmp_path, version=before).count() == 200
    assert table.publish().files_published == 0
    assert table.history(1)[0].operation in {"publish", "build indexes"}
    assert table.vacuum(originals=True).removed == []
    with pytest.raises(lakemark.UnsupportedError, match="a glob or a single file"):
        lakemark.Table(str(tmp_path / "*.parquet"), store=tmp_path / "_other").publish()


@pytest.mark.parametrize("is_delta", [False, True])
def test_a_call_is_made_once(tmp_path: Path, is_delta: bool) -> None:
    if is_delta:
        deltalake.write_deltalake(str(tmp_path), rows(0))
    else:
        pq.write_table(rows(0), tmp_path / "a.parquet")
    table = lakemark.Table(tmp_path, key="id")
    first = table.insert({"id": [500], "v": [1]}, txn_app_id="loader", txn_version=17)
    assert (first.sequence, first.rows) == (1, 1)
    for step in (table.flush, table.migrate, table.publish):
        for version in (17, 3):
            again = lakemark.Table(tmp_path).insert({"id": [501], "v": [1]}, txn_app_id="loader", txn_version=version)
            assert (again.sequence, again.rows) == (1, 0)
        step()
    assert table.delete([500], txn_app_id="loader", txn_version=18).rows == 1
    assert table.count() == 100
    with pytest.raises(lakemark.InvalidInputError, match="go together"):
        table.delete([1], txn_app_id="loader")
    with pytest.raises(lakemark.InvalidInputError, match="from 0 on"):
        table.delete([1], txn_app_id="loader", txn_version=-1)

"""Values that are written keep their digits, from Python, from files and in SQL."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lakemark", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_digits_are_kept_inside_of_others_and_in_files(tmp_path: Path) -> None:
    place = pa.struct([("n", pa.int64()), ("e", pa.decimal128(5, 2))])
    columns = {
        "id": pa.array([1], pa.int64()),
        "e": pa.array([decimal.Decimal("1.00")], pa.decimal128(5, 2)),
        "d": pa.array([dt.date(2024, 1, 1)]),
        "p": pa.array([{"n": 1, "e": decimal.Decimal("1.00")}], place),
        "l": pa.array([[1]], pa.list_(pa.int64())),
        "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    }
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "t" / "a.parquet")
    table = lakemark.Table(tmp_path / "t", key="id")
    before = table.scan().to_arrow()
    for row, says in [
        ({"e": 1.239}, r"row 0 has 1.239 for e, which is Decimal128\(5, 2\); cast it first"),
        ({"e": "1.239"}, "row 0 has 1.239 for e"),
        ({"d": "2024-05-05 13:00:00"}, "row 0 has 2024-05-05 13:00:00 for d, which is Date32"),
        ({"p": {"n": 1.5}}, r"row 0 has 1.5 for p\.n, which is Int64; cast it first"),
        ({"p": {"e": decimal.Decimal("1.239")}}, r"row 0 has 1.239 for p\.e"),
        ({"l": [1.0, 1.5]}, r"row 0 has 1.5 for l\[\], which is Int64"),
    ]:
        for change in (table.upsert, table.update):
            with pytest.raises(lakemark.SchemaMismatchError, match=says):
                change([{"id": 1, **row}])
    maps = pa.table({"id": [1], "m": pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64()))})
    with pytest.raises(lakemark.SchemaMismatchError, match=r"row 0 has 1.5 for m\[\]"):
        table.upsert(maps)
    for name, text, says in [
        ("a.csv", "id,e\n1,1.239\n", "row 0 has 1.239 for e"),
        ("b.csv", "id,d\n1,2024-05-05 13:00:00\n", "row 0 has 2024-05-05 13:00:00 for d"),
        ("c.json", '{"id": 1, "e": 1.239}', "has 1.239 for e"),
        ("d.json", '{"id": 1, "p": {"n": 1.5}}', "has 1.5 for p.n"),
    ]:
        (tmp_path / name).write_text(text, "utf-8")
        done = command("upsert", tmp_path / "t", tmp_path / name)
        assert done.returncode != 0
        assert says in done.stderr
    assert table.scan().to_arrow() == before
    table.upsert([{"id": 1, "e": 1.1, "d": "2024-05-05", "p": {"n": 2.0, "e": "1.230"}, "l": [5.0]}])
    (tmp_path / "fits.csv").write_text("id,e,d\n2,1.230,2024-05-05\n", "utf-8")
    assert command("upsert", tmp_path / "t", tmp_path / "fits.csv").returncode == 0
    assert table.scan(columns=["id", "e", "d"]).to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "e": decimal.Decimal("1.10"), "d": dt.date(2024, 5, 5)},
        {"id": 2, "e": decimal.Decimal("1.23"), "d": dt.date(2024, 5, 5)},
    ]


def test_sql_says_what_would_be_lost_and_what_to_write(tmp_path: Path) -> None:
    columns = {"id": pa.array([1], pa.int64()), "a": pa.array([1], pa.int64())}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    session = lakemark.connect()
    session.register("t", lakemark.Table(tmp_path, key="id"))
    says = r"7.5 cannot be written to a, which is BIGINT, without losing a part of it; .* write CAST\(… AS BIGINT\)"
    for statement, parameters in [
        ("INSERT INTO t VALUES (2, 7.5)", None),
        ("UPDATE t SET a = $1", [7.5]),
        ("UPDATE t SET a = $1", [decimal.Decimal("7.5")]),
        ("REPLACE INTO t SELECT id, 7.5 FROM t", None),
    ]:
        with pytest.raises(lakemark.SchemaMismatchError, match=says):
            session.sql(statement, parameters)
    session.sql("UPDATE t SET a = CAST($1 AS BIGINT)", [7.5])
    assert session.sql("SELECT a FROM t").to_arrow().to_pylist() == [{"a": 7}]


def test_what_fits_is_what_duckdb_writes(tmp_path: Path) -> None:
    columns = {
        "id": pa.array([1, 2, 3], pa.int64()),
        "a": pa.array([10, 20, 30], pa.int64()),
        "e": pa.array(map(decimal.Decimal, ("1.15", "2.25", "9.99")), pa.decimal128(5, 2)),
        "d": pa.array([dt.date(2024, 1, 1)] * 3),
        "r": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "s": pa.array(["x", "y", "z"]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    session = lakemark.connect()
    session.register("t", lakemark.Table(tmp_path, key="id"))
    judge = duckdb.connect()
    judge.sql(f"CREATE TABLE t AS FROM '{tmp_path}/a.parquet'")
    for statement in [
        "INSERT INTO t VALUES (4, 7.0, 1.230, '2024-05-05', 0.1, 7), (5, '8', '1.5', DATE '2024-05-06', 3, 'x')",
        "INSERT INTO t (e, id) SELECT e * 1.5, id + 10 FROM t WHERE id < 4",
        "INSERT INTO t (d, id) SELECT CAST(TIMESTAMP '2024-05-05 13:00:00' AS DATE), 20",
        "INSERT INTO t (s, id) SELECT y, x FROM (VALUES (30, 'a'), (31, 'b')) v(x, y)",
        "INSERT INTO t (id, a) SELECT 40 + n, n FROM (SELECT CAST(1 AS DOUBLE) AS n UNION ALL SELECT 2) q",
        "UPDATE t SET e = e * 1.125, a = a + 1.0 WHERE id < 4",
        "UPDATE t SET e = e / 3 WHERE id = 5",
        "UPDATE t SET d = TIMESTAMP '2024-07-01 00:00:00', r = 0.2 WHERE id = 2",
        "UPDATE t SET a = CASE WHEN id > 2 THEN 7 ELSE 8.0 END, e = coalesce(e * 2, 0) WHERE id IN (2, 3, 20)",
        "DELETE FROM t WHERE e = 1.5",
    ]:
        session.sql(statement)
        judge.sql(statement)
        question = "SELECT * FROM t ORDER BY id"
        assert session.sql(question).to_arrow().to_pylist() == judge.sql(question).to_arrow_table().to_pylist(), (
            statement
        )

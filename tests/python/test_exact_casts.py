"""Values that are written keep their digits, from Python, from files and in SQL."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UTC = dt.timezone.utc
DAY = dt.date(2024, 5, 5)
NOON = dt.datetime(2024, 5, 6, 12)  # noqa: DTZ001 - no zone is what is tested
NANOS = pd.Timestamp("2024-05-06 12:00:00.000000789")
TYPES = {
    "id": pa.int64(),
    "d": pa.date32(),
    "t": pa.timestamp("us"),
    "z": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("ns"),
    "c": pa.time64("us"),
    "u": pa.uint64(),
    "e": pa.decimal128(30, 2),
    "x": pa.float64(),
    "s": pa.string(),
    "p": pa.struct([("d", pa.date32()), ("t", pa.timestamp("us"))]),
    "l": pa.list_(pa.timestamp("us")),
}


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
        "r": pa.array([0.5], pa.float32()),
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
        ("e.json", '{"id": 1, "p": {"n": 1, "moon": 2}}', "has the field p.moon, which the table lacks"),
        ("f.json", '{"id": 1, "e": "1.5e-7"}', 'has "1.5e-7" for e'),
        ("g.ndjson", '{"id": 2}\n{"id": 1, "e": 12, "e": 13}', "row 1 of"),
        ("h.json", '{"id": 1, "moon": 2}', "the table has no column moon"),
        ("i.json", '{"id": 1, "m": {"k": 9007199254740993.5}}', "has 9007199254740993.5 for m[]"),
        ("j.csv", "id,r\n1,1e400\n", "row 0 has 1e400 for r, which is Float32"),
        ("k.csv", "id,r\n1,1e300\n", "row 0 has 1e300 for r"),
        ("l.csv", "id,r,r\n1,1,2\n", "the column r twice"),
    ]:
        (tmp_path / name).write_text(text, "utf-8")
        done = command("upsert", tmp_path / "t", tmp_path / name)
        assert done.returncode != 0
        assert says in done.stderr
    assert table.scan().to_arrow() == before
    table.upsert([{"id": 1, "e": 1.1, "d": "2024-05-05", "p": {"n": 2.0, "e": "1.230"}, "l": [5.0]}])
    (tmp_path / "fits.csv").write_text("id,e,d\n2,1.230,2024-05-05\n", "utf-8")
    assert command("upsert", tmp_path / "t", tmp_path / "fits.csv").returncode == 0
    (tmp_path / "fits.json").write_text('{"id": 3, "e": 12e1, "d": "2024-05-05"} {"id": 4, "e": "1.5e-1"}', "utf-8")
    assert command("insert", tmp_path / "t", tmp_path / "fits.json").returncode == 0
    assert table.scan(columns=["id", "e", "d"]).to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "e": decimal.Decimal("1.10"), "d": dt.date(2024, 5, 5)},
        {"id": 2, "e": decimal.Decimal("1.23"), "d": dt.date(2024, 5, 5)},
        {"id": 3, "e": decimal.Decimal("120.00"), "d": dt.date(2024, 5, 5)},
        {"id": 4, "e": decimal.Decimal("0.15"), "d": None},
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


@pytest.fixture
def typed(tmp_path: Path) -> lakemark.Table:
    """A column of each type, and the key `id` of one row."""
    columns = {name: pa.array([1 if name == "id" else None], of) for name, of in TYPES.items()}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return lakemark.Table(tmp_path, key="id")


FORMS: dict[str, Callable[[str, list[Any]], object]] = {
    "dicts": lambda name, values: [{"id": row, name: value} for row, value in enumerate(values)],
    "columns": lambda name, values: {"id": range(len(values)), name: values},
    "objects": lambda name, values: {"id": range(len(values)), name: np.array([*values, None], object)[:-1]},
    "frame": lambda name, values: pd.DataFrame({"id": range(len(values)), name: pd.Series(values, dtype=object)}),
}


def kept(table: lakemark.Table, name: str) -> list[Any]:
    rows = table.scan(columns=["id", name]).to_arrow().sort_by("id")
    column = rows[name].cast(pa.int64()) if pa.types.is_timestamp(rows[name].type) else rows[name]
    return column.to_pylist()


@pytest.mark.parametrize("form", FORMS)
def test_each_value_of_python_is_written_as_it_is(typed: lakemark.Table, form: str) -> None:
    midnight, noon = 1_714_867_200, 1_714_996_800
    for name, values, expected in [
        ("t", [DAY, NOON, pd.NaT], [midnight * 10**6, noon * 10**6, None]),
        ("t", [NOON, DAY, None], [noon * 10**6, midnight * 10**6, None]),
        ("d", [DAY, dt.datetime(2024, 5, 6)], [DAY, NOON.date()]),  # noqa: DTZ001
        (
            "z",
            [NOON.replace(tzinfo=UTC), pd.Timestamp(NOON, tz="Asia/Tokyo")],
            [noon * 10**6, (noon - 9 * 3600) * 10**6],
        ),
        ("n", [NANOS, NOON, DAY], [noon * 10**9 + 789, noon * 10**9, midnight * 10**9]),
        ("n", [np.datetime64(NANOS.value, "ns"), None], [noon * 10**9 + 789, None]),
        ("u", [2**64 - 1, 7], [2**64 - 1, 7]),
        ("e", [2**70, decimal.Decimal("1.5")], [decimal.Decimal(2**70), decimal.Decimal("1.5")]),
        ("e", [2**70, -(2**63)], [decimal.Decimal(2**70), decimal.Decimal(-(2**63))]),
        ("x", [np.float16(1.5), 2], [1.5, 2.0]),
        ("p", [{"t": DAY}, {"t": NOON, "d": DAY}], [{"d": None, "t": dt.datetime(2024, 5, 5)}, {"d": DAY, "t": NOON}]),  # noqa: DTZ001
        ("l", [[DAY, NOON], None, []], [[dt.datetime(2024, 5, 5), NOON], None, []]),  # noqa: DTZ001
    ]:
        typed.upsert(FORMS[form](name, values))
        assert kept(typed, name)[: len(values)] == expected, (name, values)


@pytest.mark.parametrize("form", FORMS)
def test_what_python_values_would_lose_is_an_error(typed: lakemark.Table, form: str) -> None:
    before = typed.scan().to_arrow()
    exact, invalid = lakemark.SchemaMismatchError, lakemark.InvalidInputError
    for name, values, kind, says in [
        ("d", [DAY, NOON], exact, "row 1 has 2024-05-06T12:00:00 for d, which is Date32"),
        ("d", [NOON, DAY], exact, "row 0 has 2024-05-06T12:00:00 for d"),
        ("p", [{"d": DAY}, {"d": NOON}], exact, r"row 1 has 2024-05-06T12:00:00 for p\.d"),
        ("t", [NANOS, NOON], exact, "row 0 has 2024-05-06T12:00:00.000000789 for t"),
        ("t", [NOON, NANOS], exact, "row 1 has 2024-05-06T12:00:00.000000789 for t"),
        ("l", [[NOON], [DAY, NANOS]], exact, r"row 1 has 2024-05-06T12:00:00.000000789 for l\[\]"),
        (
            "t",
            [NOON, NOON.replace(tzinfo=UTC)],
            invalid,
            r"those of t: of 2024-05-06 12:00:00 and .* only one has a zone",
        ),
        ("z", [NOON.replace(tzinfo=UTC), NOON], invalid, "only one has a zone; give all of them one, or none"),
        ("z", [DAY, NOON.replace(tzinfo=UTC)], invalid, "those of z: of 2024-05-05 .* only one has a zone"),
        ("n", [NANOS, dt.datetime(9999, 1, 1)], invalid, "out of bounds for nanosecond"),  # noqa: DTZ001
        ("c", [dt.time(1), dt.time(1, tzinfo=UTC)], invalid, r"those of c: .* has a zone, which no column of times"),
        ("u", [2**64], exact, "row 0 has 18446744073709551616 for u, which is UInt64"),
        ("u", [-1], exact, "row 0 has -1 for u"),
        ("u", [2**300], invalid, "those of u"),
        ("e", [decimal.Decimal("1.5"), decimal.Decimal("1.239")], exact, "row 1 has 1.239 for e"),
        ("e", [2.5, 2**60 + 1], invalid, "those of e: Integer value 1152921504606846977 is outside"),
        ("s", ["x", "\ud800"], invalid, "those of s: .*surrogates"),
        ("p", [{"d": DAY, "moon": 1}], exact, "the field moon in the column p"),
        ("p", [{"d": DAY}, {"d": DAY, 7: 1}], invalid, "those of p: 7 is no name of a field"),
        ("p", [{"d": DAY}, {"t": NOON, b"t": DAY}], invalid, "those of p: b't' is no name of a field"),
        ("p", [{"d": DAY}, "x"], invalid, "those of p: 'x' stands beside dicts"),
        ("l", [[NOON], NOON], invalid, "those of l: .* stands beside lists"),
    ]:
        for change in (typed.upsert, typed.update):
            with pytest.raises(kind, match=says):
                change(FORMS[form](name, values))
    assert typed.scan().to_arrow() == before


@pytest.mark.parametrize("form", FORMS)
def test_a_number_is_no_date_no_time_and_no_timedelta(typed: lakemark.Table, form: str) -> None:
    before = typed.scan().to_arrow()
    hour = dt.timedelta(hours=1)
    for name, beside, called, numbers in [
        ("t", NOON, "dates or datetimes", [0, 7, 45000.5, decimal.Decimal("7.9"), np.float64(7.9), hour]),
        ("z", NOON.replace(tzinfo=UTC), "dates or datetimes", [7, 45000.5]),
        ("n", NANOS, "dates or datetimes", [7, 45000.5]),
        ("n", np.datetime64(NANOS.value, "ns"), "dates or datetimes", [np.int32(7), np.bool_(True), 7.9]),
        ("d", DAY, "dates or datetimes", [7, 45000.5, decimal.Decimal("7.9"), np.int32(7), np.float16(7.5)]),
        ("d", DAY, "dates or datetimes", [np.timedelta64(7, "ns"), np.bool_(True)]),
        ("u", hour, "timedeltas", [0, 7.9, decimal.Decimal("7.9")]),
        ("u", pd.Timedelta(5, "ns"), "timedeltas", [7, 7.9]),
        ("u", np.timedelta64(7, "ns"), "timedeltas", [7]),
        ("c", dt.time(1), "times of day", [7, 7.9, decimal.Decimal("7.9"), np.int32(7), np.bool_(True)]),
    ]:
        for number in numbers:
            for values in ([beside, number], [None, number, beside]):
                says = rf"those of {name}: {re.escape(repr(number))} stands beside {called}; make it one of them first"
                with pytest.raises(lakemark.InvalidInputError, match=says):
                    typed.upsert(FORMS[form](name, values))
    for name, values in [("p", [{"t": NOON}, {"t": 7.9}]), ("l", [[NOON], [7.9]]), ("l", [[NOON, 7]])]:
        with pytest.raises(lakemark.InvalidInputError, match=f"those of {name}: 7.* stands beside dates or datetimes"):
            typed.upsert(FORMS[form](name, values))
    with pytest.raises(lakemark.InvalidInputError, match="only one has a zone"):
        typed.upsert(FORMS[form]("z", [NOON.replace(tzinfo=UTC), np.datetime64("2024-05-06T12:00:00", "us")]))
    assert typed.scan().to_arrow() == before


def test_nan_in_a_frame_is_null_beside_dates_and_times(typed: lakemark.Table) -> None:
    for name, value in [("t", NOON), ("d", DAY), ("c", dt.time(1))]:
        for nan in (float("nan"), np.nan, decimal.Decimal("nan"), pd.NaT, pd.NA):
            typed.upsert(FORMS["frame"](name, [nan, value]))
            rows = typed.scan(columns=["id", name]).to_arrow().sort_by("id")
            assert rows[name].to_pylist() == [None, value]
    with pytest.raises(lakemark.InvalidInputError, match="nan stands beside dates or datetimes"):
        typed.upsert([{"id": 0, "t": NOON}, {"id": 1, "t": float("nan")}])


def test_names_of_columns_are_texts_and_different(typed: lakemark.Table) -> None:
    for rows, kind, says in [
        ([{"id": 1, None: 2}], lakemark.InvalidInputError, "None is no name of a column"),
        ({"id": [1], 7: [2]}, lakemark.InvalidInputError, "7 is no name of a column"),
        ([{"id": 1, "X": 2.0}], lakemark.SchemaMismatchError, "no column X"),
        (pd.DataFrame([[1, 2.0, 3.0]], columns=["id", "x", "x"]), lakemark.InvalidInputError, "the column x twice"),
        (pd.DataFrame({"id": [1]}, index=pd.Index([2], name="id")), lakemark.InvalidInputError, "the column id twice"),
    ]:
        with pytest.raises(kind, match=says):
            typed.upsert(rows)


def test_series_keep_what_their_library_has(typed: lakemark.Table) -> None:
    nanos = NANOS.value
    typed.upsert({"id": [1], "n": pl.Series([nanos], dtype=pl.Datetime("ns"))})
    assert kept(typed, "n") == [nanos]
    typed.upsert({"id": pd.Series([1]), "n": pd.Series([NANOS])})
    assert kept(typed, "n") == [nanos]
    mixed = pd.Series([DAY, NOON], dtype=object)
    with pytest.raises(lakemark.SchemaMismatchError, match="row 1 has 2024-05-06T12:00:00 for d"):
        typed.upsert(pd.DataFrame({"id": [1, 2], "d": mixed.astype("category")}))
    # Months are numbers to Arrow.
    for values in (pd.period_range("2024-01", periods=1, freq="M"), pd.interval_range(0, 1)):
        with pytest.raises(lakemark.InvalidInputError, match="has no type in Arrow; give timestamps"):
            typed.upsert(pd.DataFrame({"id": [1], "u": values}))


def test_keys_and_parameters_keep_their_times(tmp_path: Path) -> None:
    first = dt.datetime(2024, 5, 5)  # noqa: DTZ001
    pq.write_table(pa.table({"day": pa.array([DAY, NOON.date()]), "n": [1, 2]}), tmp_path / "a.parquet")
    table = lakemark.Table(tmp_path, key="day")
    for keys in ([DAY, NOON], [NOON, DAY], pd.Series([DAY, NOON], dtype=object), np.array([DAY, NOON], object)):
        with pytest.raises(lakemark.SchemaMismatchError, match="2024-05-06T12:00:00 for day"):
            table.delete(keys)
        assert table.lookup(keys, columns=["n"]).to_arrow().to_pylist() == [{"n": 1}]
    with pytest.raises(lakemark.InvalidInputError, match="only one has a zone"):
        table.delete([NOON, NOON.replace(tzinfo=UTC)])
    assert table.lookup([2**64, 1], on="n", columns=["n"]).to_arrow().to_pylist() == [{"n": 1}]
    with pytest.raises(lakemark.InvalidInputError, match="the keys must be values of one type"):
        table.lookup([2**300])
    session = lakemark.connect()
    session.register("t", table)
    with pytest.raises(lakemark.SchemaMismatchError, match="without losing a part of it"):
        session.sql("INSERT INTO t VALUES ($1, 3)", [pd.Timestamp("2024-05-07 00:00:00.000000001")])
    assert table.delete([DAY, first + dt.timedelta(days=1)]).rows == 2
    assert table.count() == 0

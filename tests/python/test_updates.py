"""Buffered updates: what the operations mean, what they refuse, and what reports say of them."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import deltalake
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from stock_table import SMALL, names, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


# ---- what the operations mean ------------------------------------------------------------------------------------


def test_every_operation_before_and_after_a_flush(stock: lakemark.Table) -> None:
    assert stock.insert([{"id": 10, "name": "new"}]) == lakemark.Written(1, 1)
    assert stock.upsert({"id": [1, 11], "name": ["one", "eleven"]}) == lakemark.Written(2, 2)
    assert stock.update([{"id": 2, "name": None}, {"id": 99, "name": "nobody"}]) == lakemark.Written(3, 2)
    assert stock.delete([0, 3, 98]) == lakemark.Written(4, 3)
    expected = {n: f"thing {n}" for n in range(4, 10)} | {1: "one", 2: None, 10: "new", 11: "eleven"}
    for _ in range(2):
        assert names(stock) == expected
        # An upsert gives whole rows, an update sets what it names.
        assert rows_of(stock, "id IN (1, 2)") == [
            (1, "one", None, None, None),
            (2, None, 3.0, 2, dt.date(2024, 1, 3)),
        ]
        assert (stock.count(), stock.count("name IS NULL"), stock.count("price > 0")) == (10, 1, 7)
        assert stock.lookup([0, 1, 10], columns=["name"], on="id").to_arrow().num_rows == 2
        assert stock.group_count("name", "id < 3").to_arrow().num_rows == 2
        assert stock.min_max("id").to_arrow().to_pylist() == [{"min": 1, "max": 11}]
        stock.flush()
    assert stock.info().rows == 10


def test_changes_of_one_key_build_on_each_other(stock: lakemark.Table) -> None:
    stock.delete([1])
    stock.insert([{"id": 1, "name": "again"}])
    stock.update([{"id": 1, "n": 7}])
    assert rows_of(stock, "id = 1") == [(1, "again", None, 7, None)]
    stock.flush()
    stock.update([{"id": 1, "price": 2.5}])
    stock.delete([2])
    stock.update([{"id": 2, "name": "gone"}])
    assert rows_of(stock, "id < 3", ["id", "name", "price", "n"]) == [
        (0, "thing 0", 0.0, 0),
        (1, "again", 2.5, 7),
    ]


def test_buffered_changes_win_over_rows_that_others_add_later(stock: lakemark.Table, folder: Path) -> None:
    stock.upsert([{"id": 20, "name": "pending"}])
    stock.delete([21])
    pq.write_table(pa.table({"id": [20, 21, 22], "name": ["late"] * 3}), folder / "c.parquet")
    assert {key: name for key, name in names(stock).items() if key >= 20} == {20: "pending", 22: "late"}


def test_a_result_of_a_scan_stays_what_it_was_pinned_to(stock: lakemark.Table) -> None:
    session = lakemark.connect()
    session.register("t", stock)
    before = session.sql("SELECT count(*) AS n FROM t WHERE id < 5")
    assert before.to_arrow().to_pylist() == [{"n": 5}]
    stock.delete([0, 1])
    assert session.sql("SELECT count(*) AS n FROM t WHERE id < 5").to_arrow().to_pylist() == [{"n": 3}]


# ---- what rows may be --------------------------------------------------------------------------------------------

NEW = {"id": [100, 101], "name": ["x", "y"]}


@pytest.mark.parametrize(
    "make",
    [
        lambda: NEW,
        lambda: [{"id": 100, "name": "x"}, {"name": "y", "id": 101}],
        lambda: pa.table(NEW),
        lambda: pa.RecordBatch.from_pydict(NEW),
        lambda: pa.table(NEW).to_reader(max_chunksize=1),
        lambda: pa.Table.from_batches(pa.table(NEW).to_batches(max_chunksize=1)),
        lambda: pl.DataFrame(NEW),
        lambda: pl.DataFrame(NEW).with_columns(pl.col("name").cast(pl.Categorical)),
        lambda: pd.DataFrame(NEW),
        lambda: pd.DataFrame(NEW).iloc[::-1],
        lambda: pd.DataFrame(NEW).set_index("id"),
        lambda: pd.DataFrame(NEW).convert_dtypes(),
        lambda: duckdb.sql("SELECT unnest([100, 101]) AS id, unnest(['x', 'y']) AS name").arrow(),
        lambda: lakemark.connect().sql("SELECT * FROM (VALUES (100, 'x'), (101, 'y')) AS v (id, name)"),
        lambda: iter([{"id": 100, "name": "x"}, {"id": 101, "name": "y"}]),
    ],
)
def test_rows_of_every_kind(stock: lakemark.Table, make: Callable[[], object]) -> None:
    assert stock.insert(make()) == lakemark.Written(1, 2)
    assert rows_of(stock, "id >= 100", ["id", "name"]) == [(100, "x"), (101, "y")]
    assert stock.delete(make()).rows == 2
    assert stock.upsert(make()).rows == 2
    assert stock.update(make()).rows == 2
    assert stock.count() == 12


@pytest.mark.parametrize(
    "keys",
    [
        [1, 2],
        (1, 2),
        {1, 2},
        range(1, 3),
        pa.array([1, 2]),
        pa.array([1, 2], pa.int8()),
        pa.chunked_array([[1], [2]]),
        np.array([1, 2]),
        pd.Series([1, 2]),
        pl.Series([1, 2]),
        ["1", "2"],
        [1.0, 2.0],
        [{"id": 1}, {"id": 2}],
        {"id": [1, 2], "name": ["ignored", None]},
    ],
)
def test_keys_of_every_kind(stock: lakemark.Table, keys: object) -> None:
    assert stock.delete(keys) == lakemark.Written(1, 2)
    assert sorted(names(stock)) == [0, 3, 4, 5, 6, 7, 8, 9]


def test_a_single_key_and_a_key_of_text(stock: lakemark.Table, tmp_path: Path) -> None:
    assert stock.delete(7).rows == 1
    assert 7 not in names(stock)
    pq.write_table(pa.table({"who": ["anna", "bo"], "n": [1, 2]}), tmp_path / "who.parquet")
    who = lakemark.Table(tmp_path / "who.parquet", store=tmp_path / "store", key="who")
    who.delete("anna")
    who.insert([{"who": "anna", "n": 3}])
    assert rows_of(who) == [("anna", 3), ("bo", 2)]


def test_values_are_cast_to_the_columns_types_if_they_fit(stock: lakemark.Table) -> None:
    stock.upsert({"id": ["30"], "price": [2], "n": [2**31 - 1], "day": ["2024-05-06"]})
    stock.upsert({"id": [31], "price": [None], "n": [4.0], "day": [dt.datetime(2024, 5, 7)]})  # noqa: DTZ001
    assert rows_of(stock, "id >= 30") == [
        (30, None, 2.0, 2**31 - 1, dt.date(2024, 5, 6)),
        (31, None, None, 4, dt.date(2024, 5, 7)),
    ]


def test_no_rows_are_no_change(stock: lakemark.Table) -> None:
    for change in (stock.insert, stock.upsert, stock.update, stock.delete):
        assert change([]) == lakemark.Written(0, 0)
    assert stock.insert(pa.table(NEW).slice(0, 0)) == lakemark.Written(0, 0)
    assert stock.snapshot.sequence == 0


def test_dicts_may_lack_columns_where_that_means_null(stock: lakemark.Table) -> None:
    rows = [{"id": 40, "name": "a"}, {"id": 41, "n": 7}]
    stock.insert(rows)
    assert rows_of(stock, "id >= 40", ["id", "name", "n"]) == [(40, "a", None), (41, None, 7)]
    with pytest.raises(lakemark.InvalidInputError, match="row 0 lacks n, which others have"):
        stock.update(rows)
    assert stock.snapshot.sequence == 1


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda t: t.insert([{"id": 3}]), lakemark.AlreadyExistsError, "the key id = 3 is there already"),
        (lambda t: t.insert([{"id": 50}, {"id": 50}]), lakemark.InvalidInputError, "id = 50 stands in rows 0 and 1"),
        (lambda t: t.upsert([{"id": None}]), lakemark.InvalidInputError, "row 0 has no value for id"),
        (lambda t: t.upsert([{"name": "x"}]), lakemark.InvalidInputError, r"lack a column of the key \(id\)"),
        (
            lambda t: t.upsert([{"id": 1, "moon": 2}]),
            lakemark.SchemaMismatchError,
            "no column moon; its columns are id",
        ),
        (
            lambda t: t.upsert([{"id": 1, "n": 2**31}]),
            lakemark.SchemaMismatchError,
            "row 0 has 2147483648 for n, which is Int32; give a value that fits it",
        ),
        (
            lambda t: t.upsert([{"id": 1, "n": 1.5}]),
            lakemark.SchemaMismatchError,
            "row 0 has 1.5 for n, which is Int32",
        ),
        (lambda t: t.upsert([{"id": 1, "n": "x"}]), lakemark.SchemaMismatchError, "row 0 has x for n, which is Int32"),
        (lambda t: t.upsert([{"id": 1, "day": "x"}]), lakemark.SchemaMismatchError, "row 0 has x for day"),
        (lambda t: t.update([{"id": 1}]), lakemark.InvalidInputError, "names no column beside the key"),
        (lambda t: t.delete(["x"]), lakemark.SchemaMismatchError, "row 0 has x for id, which is Int64"),
        (lambda t: t.delete([1.5]), lakemark.SchemaMismatchError, "row 0 has 1.5 for id"),
        (lambda t: t.delete([1, "x"]), lakemark.InvalidInputError, "values of one type"),
        (lambda t: t.delete([{"name": "x"}]), lakemark.InvalidInputError, r"lack a column of the key \(id\)"),
        (lambda t: t.insert(pa.array([1])), lakemark.InvalidInputError, "insert takes rows with columns"),
        (lambda t: t.insert(7), lakemark.InvalidInputError, "int holds no rows"),
        (lambda t: t.insert("stock.parquet"), lakemark.InvalidInputError, "str holds no rows"),
        (lambda t: t.insert([1, 2]), lakemark.InvalidInputError, "row 0 is int and no dict"),
        (lambda t: t.insert({"id": 1}), lakemark.InvalidInputError, "put its dict into a list"),
        (lambda t: t.insert({"id": [1], "n": [1, 2]}), lakemark.InvalidInputError, "equally long"),
        (lambda t: t.insert([{"id": 1}, {"id": "x"}]), lakemark.InvalidInputError, "of one type each"),
    ],
)
def test_wrong_changes_change_nothing(
    stock: lakemark.Table, change: Callable[[lakemark.Table], object], kind: type[Exception], says: str
) -> None:
    before = rows_of(stock)
    with pytest.raises(kind, match=says):
        change(stock)
    assert rows_of(stock) == before
    assert stock.snapshot.sequence == 0


def test_an_error_in_the_middle_of_a_stream_changes_nothing(stock: lakemark.Table) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict(NEW)
        raise ValueError("the source broke")

    reader = pa.RecordBatchReader.from_batches(pa.table(NEW).schema, batches())
    with pytest.raises(lakemark.LakemarkError, match="the source broke"):
        stock.insert(reader)
    assert stock.count() == 10


def test_a_full_cache_refuses_changes_and_loses_none(folder: Path) -> None:
    table = lakemark.Table(folder)
    table.declare_key("id", progress=False, **SMALL)
    made = 10
    noise = random.Random(7)  # noqa: S311 - no secret
    full = None
    while full is None and made < 100_000:
        ids = range(1000 + made, 1100 + made)
        try:
            table.insert({"id": ids, "name": [str(noise.random()) for _ in ids]})
            made += 100
        except lakemark.CacheFullError as error:
            full = str(error)
    assert full is not None
    assert "all before them are safe: run `lakemark migrate" in full
    assert made > 500
    assert table.count() == made
    info = table.updates
    assert info is not None
    assert 0.3 < info.cache_share <= 1


# ---- reports -----------------------------------------------------------------------------------------------------


def test_updates_are_told_as_values_text_and_pictures(folder: Path) -> None:
    table = lakemark.Table(folder)
    table.declare_key("id", progress=False, **SMALL)
    for start in range(100, 700, 100):
        table.upsert({"id": range(start, start + 100), "name": ["x"] * 100})
        table.flush()
    table.update([{"id": 1, "name": "one"}, {"id": 100, "name": "two"}])
    info = table.updates
    assert info is not None
    assert (info.key, info.sequence, info.rows_buffered, info.rows_deleted) == (("id",), 7, 601, 1)
    assert (info.buffer_keys, info.rows_written, info.base_rows) == (2, 600, 10)
    assert sum(run.rows for run in info.runs) == 600
    assert sum(run.bytes for run in info.runs) == info.cache_bytes
    assert 0 < info.buffer_bytes < info.buffer_limit
    assert len(info.runs) <= info.runs_limit
    values = info.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert values["runs"][0]["rows"] == info.runs[0].rows
    text = str(info)
    assert "buffered rows:     601, 1 rows of data files deleted" in text
    assert f"{info.writes_per_update:.2f} of at most 1.75" in text
    html = info._repr_html_()
    assert [html.count(f"<b>{title}</b>") for title in ("buffer", "cache", "writes per update", "runs")] == [1] * 4
    assert "buffered rows" in str(table.info())
    assert "buffered rows" in table.info()._repr_html_()
    snapshot = table.snapshot
    assert (snapshot.rows_deleted, snapshot.rows_buffered, snapshot.sequence) == (1, 601, 7)


def test_the_command_tells_the_same(stock: lakemark.Table) -> None:
    stock.delete([1])
    done = subprocess.run(
        [sys.executable, "-m", "lakemark", "info", stock.location, "--format", "json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    info = stock.updates
    assert info is not None
    assert json.loads(done.stdout)["updates"] == info.to_dict()


# ---- tables of other kinds ---------------------------------------------------------------------------------------


def test_a_delta_table_takes_updates_while_others_write(tmp_path: Path) -> None:
    path = str(tmp_path / "delta")
    deltalake.write_deltalake(path, pa.table({"id": range(100), "v": [n % 7 for n in range(100)]}))
    table = lakemark.Table(path, key="id")
    table.upsert({"id": [5, 500], "v": [70, 71]})
    table.delete(range(10, 20))
    deltalake.write_deltalake(path, pa.table({"id": [500, 501], "v": [1, 2]}), mode="append")
    deltalake.DeltaTable(path).delete("id >= 90 AND id < 100")
    expected = {n: n % 7 for n in range(90) if not 10 <= n < 20} | {5: 70, 500: 71, 501: 2}
    for _ in range(2):
        assert dict(rows_of(table)) == expected
        assert table.count("v >= 70") == 2
        table.flush()
    # Delta's own readers see Delta's own rows.
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 92


def test_an_upsert_moves_a_row_to_another_partition(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        ids = [year * 10 + n for n in range(3)]
        pq.write_table(pa.table({"id": ids, "v": [1, 2, 3]}), tmp_path / f"year={year}" / "a.parquet")
    table = lakemark.Table(tmp_path, key="id")
    of = table.schema["year"].type
    table.upsert([{"id": 20231, "v": 20, "year": 2024}, {"id": 7, "v": 7, "year": 1999}])
    table.update([{"id": 20242, "year": 2023}])
    for _ in range(2):
        assert rows_of(table, "year = 2023", ["id", "v"]) == [(20230, 1), (20232, 3), (20242, 3)]
        assert rows_of(table, "year = 2024", ["id", "v"]) == [(20231, 20), (20240, 1), (20241, 2)]
        assert table.count("year < 2000") == 1
        counts = table.group_count("year").to_arrow().to_pylist()
        assert {row["year"]: row["count"] for row in counts} == {1999: 1, 2023: 3, 2024: 3}
        table.flush()
    assert table.schema["year"].type == of


def test_a_key_may_be_a_partition_column_and_another(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"n": [1, 2], "v": [year, year]}), tmp_path / f"year={year}" / "a.parquet")
    table = lakemark.Table(tmp_path, key=["year", "n"])
    table.delete([(2023, 1)])
    table.upsert([{"year": 2024, "n": 1, "v": 0}, {"year": 2025, "n": 1, "v": 1}])
    assert rows_of(table, columns=["year", "n", "v"]) == [(2023, 2, 2023), (2024, 1, 0), (2024, 2, 2024), (2025, 1, 1)]

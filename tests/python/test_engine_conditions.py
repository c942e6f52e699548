"""Conditions of Polars and pyarrow on values of every type: the rows are those that the engine finds by itself."""

# ruff: noqa: DTZ001 - moments without a zone are among the values

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0000))[0]
FLOATS = [math.nan, NEGATIVE_NAN, -0.0, 0.0, 5e-324, -5e-324, 1.5, -1.5, math.inf, -math.inf, None] * 20


@pytest.fixture
def floats(tmp_path: Path) -> lakemark.Table:
    rows = pa.table(
        {"id": range(len(FLOATS)), "v": pa.array(FLOATS, pa.float64()), "w": pa.array(FLOATS, pa.float32())}
    )
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=50, write_page_index=True)
    table = lakemark.Table(tmp_path)
    table.create_index("v", using="bitmap", progress=False)
    table.create_index("w", using="bitmap", progress=False)
    return table


@pytest.mark.parametrize("bound", [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, 5e-324, math.nan])
@pytest.mark.parametrize("name", ["v", "w"])
def test_every_engine_has_its_own_nan_and_zeros(floats: lakemark.Table, name: str, bound: float) -> None:
    dataset, frame = floats.to_pyarrow_dataset(), lakemark.scan_polars(floats)
    rows = floats.scan(use_index=False).to_arrow()
    in_memory, eager = ds.dataset(rows), pl.DataFrame(rows)
    compared = 0
    for compare in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        arrow, polars = getattr(pc.field(name), compare)(bound), getattr(pl.col(name), compare)(bound)
        for condition in (arrow, ~arrow):
            found = dataset.to_table(columns=["id"], filter=condition)["id"].to_pylist()
            assert sorted(found) == sorted(in_memory.to_table(filter=condition)["id"].to_pylist()), condition
            assert dataset.count_rows(filter=condition) == len(found)
        for part in (polars, ~polars):
            assert set(frame.filter(part).collect()["id"]) == set(eager.filter(part)["id"]), part
            compared += 1
    assert compared == 12


UTC = dt.timezone.utc
MIXED = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "small": pa.array([-128, -1, 0, 1, 5, 126, 127, None], pa.int8()),
        "large": pa.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1, 7, 8, None], pa.uint64()),
        "money": pa.array([decimal.Decimal(n) / 4 for n in range(7)] + [None], pa.decimal128(9, 2)),
        "day": pa.array([dt.date(2024, 1, n) for n in range(1, 8)] + [None], pa.date32()),
        "local": pa.array([dt.datetime(2024, 1, 1, n) for n in range(7)] + [None], pa.timestamp("ms")),
        "moment": pa.array(
            [dt.datetime(2024, 3, 10, n, tzinfo=UTC) for n in range(7)] + [None], pa.timestamp("us", "America/New_York")
        ),
        "time": pa.array([dt.time(n) for n in range(7)] + [None], pa.time64("ns")),
        "word": pa.array(["it's", '"', "", "a\x00b", "ß", "\\", "%", None]),
        "kind": pa.array(["a", "b'", "c", "a", "b'", "c", "a", None]).dictionary_encode(),
        "bytes": pa.array([b"", b"\x00", b"'", b"\xff", b"a", b"b", b"c", None]),
        "yes": pa.array([True, False, True, False, True, False, True, None]),
        'a "b".c': pa.array([1, 2, 3, 4, 5, 6, 7, None], pa.int16()),
        "at": pa.array(
            [{"x": n, "o'b": "p"} for n in range(7)] + [None], pa.struct({"x": pa.int32(), "o'b": pa.string()})
        ),
    }
)
ODD = 'a "b".c'
CONDITIONS: list[tuple[pc.Expression | None, pl.Expr | None]] = [
    (pc.field("small") > 1.5, pl.col("small") > 1.5),
    (pc.field("small") < 1000, pl.col("small") < 1000),
    (pc.field("small") == 1.5, pl.col("small") == 1.5),
    (pc.field("small") != 300, pl.col("small") != 300),
    (~(pc.field("small") >= -129), ~(pl.col("small") >= -129)),
    (pc.field("small").isin([1, 5, None]), pl.col("small").is_in([1, 5, None])),
    (~pc.field("small").isin([1, 5]), ~pl.col("small").is_in([1, 5])),
    (None, ~pl.col("small").is_in([1, None], nulls_equal=True)),
    (None, pl.col("small").is_between(1, 126, closed="left")),
    (None, ~pl.col("small").is_between(1, 126, closed="none")),
    (None, pl.col("small").ne_missing(1)),
    (None, pl.col("small").eq_missing(None)),
    (pc.scalar(1) < pc.field("small"), pl.lit(1) < pl.col("small")),
    (pc.field("small") == pc.scalar(None), pl.col("small") == pl.lit(None, pl.Int8)),
    (pc.field("large") == pa.scalar(2**64 - 1, pa.uint64()), pl.col("large") == 2**64 - 1),
    (pc.field("large") >= pa.scalar(2**63, pa.uint64()), pl.col("large") > -1),
    (pc.field("money") > decimal.Decimal("0.255"), pl.col("money") > decimal.Decimal("0.255")),
    (pc.field("money") == decimal.Decimal("0.5"), pl.col("money") == decimal.Decimal("0.5")),
    (None, pl.col("money") == 1),
    (pc.field("day") >= dt.date(2024, 1, 3), pl.col("day") >= dt.date(2024, 1, 3)),
    (pc.field("day") > pa.scalar(dt.datetime(2024, 1, 3, 1)), pl.col("day") > dt.datetime(2024, 1, 3, 1)),
    (
        pc.field("local") > pa.scalar(dt.datetime(2024, 1, 1, 2, 0, 0, 1), pa.timestamp("us")),
        pl.col("local") > dt.datetime(2024, 1, 1, 2, 0, 0, 1),
    ),
    (
        pc.field("moment") <= pa.scalar(dt.datetime(2024, 3, 10, 3, tzinfo=UTC)),
        pl.col("moment") <= pl.lit(dt.datetime(2024, 3, 10, 3, tzinfo=UTC)).dt.convert_time_zone("America/New_York"),
    ),
    (pc.field("time") < pa.scalar(dt.time(2), pa.time64("ns")), pl.col("time") < dt.time(2)),
    (pc.field("word") == "it's", pl.col("word") == "it's"),
    (pc.field("word").isin(["\\", "a\x00b", '"']), pl.col("word").is_in(["\\", "a\x00b", '"'])),
    (pc.starts_with(pc.field("word"), "%"), pl.col("word").str.starts_with("%")),
    (~pc.starts_with(pc.field("word"), "%"), ~pl.col("word").str.starts_with("%")),
    (pc.field("kind") == "b'", pl.col("kind") == "b'"),
    (pc.field("kind").cast(pa.string()) > "a", pl.col("kind").cast(pl.String) > "a"),
    (pc.field("bytes") == b"\xff", pl.col("bytes") == b"\xff"),
    (pc.field("yes"), pl.col("yes")),
    (~pc.field("yes"), ~pl.col("yes")),
    (pc.field("yes") != True, pl.col("yes") != True),  # noqa: E712 - an expression
    (pc.field("yes") | (pc.utf8_length(pc.field("word")) > 1), pl.col("yes") | (pl.col("small") % 2 == 1)),
    (pc.field("yes") & (pc.utf8_length(pc.field("word")) > 1), pl.col("yes") & (pl.col("small") % 2 == 1)),
    (~(pc.field("yes") & (pc.field("small") > 5)), ~(pl.col("yes") & (pl.col("small") > 5))),
    (pc.field("small").is_null(), pl.col("small").is_null()),
    (pc.field("small").is_valid(), pl.col("small").is_not_null()),
    (pc.field(ODD) == 3, pl.col(ODD) == 3),
    (pc.field("at", "x") == 3, pl.col("at").struct.field("x") == 3),
    (pc.field("at", "o'b") != "q", pl.col("at").struct.field("o'b") != "q"),
    (pc.field("small") == pc.field("id"), pl.col("small") == pl.col("id")),
    (pc.scalar(False), pl.lit(False)),
    (pc.scalar(True), pl.lit(True)),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> lakemark.Table:
    folder = tmp_path_factory.mktemp("mixed")
    pq.write_table(MIXED, folder / "m.parquet", row_group_size=3, write_page_index=True)
    table = lakemark.Table(folder)
    for name in MIXED.column_names[1:-1]:
        table.create_index([name], using="bitmap", build=False)
    table.create_index("at.x", using="bitmap", build=False)
    table.build(progress=False)
    return table


def test_conditions_on_every_type_give_the_rows_of_the_engine_itself(mixed: lakemark.Table) -> None:
    dataset, frame = mixed.to_pyarrow_dataset(), lakemark.scan_polars(mixed)
    rows = mixed.scan(use_index=False).to_arrow()
    in_memory, eager = ds.dataset(rows), pl.DataFrame(rows)
    for arrow, polars in CONDITIONS:
        if arrow is not None:
            found = sorted(dataset.to_table(columns=["id"], filter=arrow)["id"].to_pylist())
            assert found == sorted(in_memory.to_table(filter=arrow)["id"].to_pylist()), arrow
            assert dataset.count_rows(filter=arrow) == len(found), arrow
            assert dataset.filter(arrow).to_table(filter=pc.field("id") < 100).num_rows == len(found), arrow
        if polars is not None:
            assert set(frame.filter(polars).collect()["id"]) == set(eager.filter(polars)["id"]), polars


def test_whole_rows_are_the_same_in_every_engine(mixed: lakemark.Table) -> None:
    rows = mixed.scan().to_arrow().sort_by("id")
    assert mixed.to_pyarrow_dataset().to_table().sort_by("id").to_pylist() == rows.to_pylist()
    assert lakemark.scan_polars(mixed).collect().sort("id").equals(pl.DataFrame(rows))
    with duckdb.connect() as connection:
        found = lakemark.scan_duckdb(mixed, connection).order("id").fetchall()
        assert found == connection.from_arrow(rows).order("id").fetchall()
    assert mixed.to_pyarrow_dataset().schema == rows.schema


def test_a_table_without_rows_has_columns_in_every_engine(tmp_path: Path) -> None:
    pq.write_table(MIXED.slice(0, 0), tmp_path / "e.parquet")
    table = lakemark.Table(tmp_path)
    assert lakemark.scan_polars(table).filter(pl.col("small") > 1).collect().columns == MIXED.column_names
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("small") > 1).column_names == MIXED.column_names
    with duckdb.connect() as connection:
        assert lakemark.scan_duckdb(table, connection).filter("small > 1").fetchall() == []


def test_texts_that_are_views_are_plain_ones_in_a_dataset(tmp_path: Path) -> None:
    words = ["a", "b'", "a longer one than fits into a view", None]
    rows = pa.table(
        {
            "id": range(4),
            "word": pa.array(words, pa.string_view()),
            "bytes": pa.array([b"\xff", b"", b"a", None], pa.binary_view()),
        }
    )
    pq.write_table(rows, tmp_path / "v.parquet")
    table = lakemark.Table(tmp_path)
    dataset = table.to_pyarrow_dataset()
    assert dataset.schema.field("word").type == pa.string()
    with duckdb.connect() as connection:
        relation = lakemark.scan_duckdb(table, connection)
        for number, word in enumerate(words[:3]):
            assert dataset.to_table(columns=["id"], filter=pc.field("word") == word)["id"].to_pylist() == [number]
            literal = str(word).replace("'", "''")
            assert relation.filter(f"word = '{literal}'").select("id").fetchall() == [(number,)]
            assert lakemark.scan_polars(table).filter(pl.col("word") == word).collect()["id"].to_list() == [number]
    assert dataset.count_rows(filter=pc.field("bytes").isin([b"\xff", b"a"])) == 2

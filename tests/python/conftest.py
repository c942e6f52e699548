"""Tables with known contents, and DuckDB as the judge of every answer."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from stock_table import stock_folder

if TYPE_CHECKING:
    from pathlib import Path

ROWS_PER_FILE = 1000
FILES = 4


@dataclass(frozen=True)
class Judged:
    """An indexed table, and the same files in DuckDB under the name `t`."""

    folder: Path
    table: lakemark.Table
    judge: duckdb.DuckDBPyConnection

    def count(self, condition: str) -> int:
        row = self.judge.execute(f"SELECT count(*) FROM t WHERE {condition}").fetchone()
        assert row is not None
        return int(row[0])

    def rows(self, columns: list[str], condition: str = "true") -> list[tuple[Any, ...]]:
        names = ", ".join(f'"{name}"' for name in columns)
        found = self.judge.execute(f"SELECT {names} FROM t WHERE {condition}").fetchall()
        return sorted(found, key=repr)


@pytest.fixture(autouse=True)
def rows_in_no_order(in_no_order: None) -> None:
    """No test goes by the order of rows that have none."""


def orders(part: int) -> pa.Table:
    """One file of orders: ids ascend over the files, every seventh city is null."""
    ids = range(part * ROWS_PER_FILE, (part + 1) * ROWS_PER_FILE)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array([None if n % 7 == 0 else ("Oslo", "Rom", "Wien", "Zürich")[n % 4] for n in ids]),
            "amount": pa.array([n * 37 % 1009 / 4 for n in ids], pa.float64()),
            "day": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=n % 90) for n in ids], pa.date32()),
            "paid": pa.array([None if n % 11 == 0 else n % 3 == 0 for n in ids], pa.bool_()),
        }
    )


def write_orders(folder: Path, parts: range = range(FILES)) -> None:
    folder.mkdir(exist_ok=True)
    for part in parts:
        pq.write_table(orders(part), folder / f"part-{part}.parquet", row_group_size=200, write_page_index=True)


def judge_of(source: str) -> duckdb.DuckDBPyConnection:
    judge = duckdb.connect()
    judge.execute(f"CREATE VIEW t AS SELECT * FROM {source}")
    return judge


@pytest.fixture
def plain(tmp_path: Path) -> Judged:
    """Four files of orders without an index."""
    folder = tmp_path / "orders"
    write_orders(folder)
    return Judged(folder, lakemark.Table(folder), judge_of(f"'{folder}/*.parquet'"))


@pytest.fixture
def indexed(plain: Judged) -> Judged:
    """The same with indexes on `city`, `id` and `day`."""
    for column in ("city", "id", "day"):
        plain.table.create_index(column, using="bitmap", name=f"by_{column}", progress=False)
    return plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten things in two files, without a key."""
    return stock_folder(tmp_path)


@pytest.fixture
def stock(folder: Path) -> lakemark.Table:
    """The same with the key `id`, so that it takes updates."""
    return lakemark.Table(folder, key="id")

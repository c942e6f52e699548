"""Random changes of a table of ours and of one of DuckDB, which stay the same."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

import lakemark

if TYPE_CHECKING:
    from conftest import Judged

KEYS = 4400


class Twins:
    """A table of ours and one of DuckDB's, which get the same changes."""

    def __init__(self, indexed: Judged, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - no secret
        self.judge = duckdb.connect()
        self.judge.execute(f"CREATE TABLE t AS SELECT * FROM '{indexed.folder}/*.parquet'")
        self.judge.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
        self.table = lakemark.Table(indexed.folder)
        self.table.declare_key("id", progress=False, cache_bytes=1 << 20, page_bytes=512)
        self.session = lakemark.connect()
        self.session.register("t", self.table)

    def drawn_keys(self) -> list[int]:
        return self.rng.sample(range(KEYS), self.rng.randrange(1, 30))

    def drawn(self, ids: list[int]) -> pa.Table:
        choice = self.rng.choice
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "city": pa.array([choice(["Oslo", "Rom", "Bern", None]) for _ in ids], pa.string()),
                "amount": pa.array([choice([None, 0.25, 7.5, 100.0]) for _ in ids], pa.float64()),
                "day": pa.array([dt.date(2024, 1, choice(range(1, 28))) for _ in ids], pa.date32()),
                "paid": pa.array([choice([True, False, None]) for _ in ids], pa.bool_()),
            }
        )

    def told(self, rows: pa.Table, statement: str) -> None:
        self.judge.register("rows", rows)
        self.judge.execute(statement)
        self.judge.unregister("rows")

    def insert(self) -> None:
        there = {key for (key,) in self.judge.execute("SELECT id FROM t").fetchall()}
        rows = self.drawn([key for key in self.drawn_keys() if key not in there])
        self.table.insert(rows)
        self.told(rows, "INSERT INTO t SELECT * FROM rows")

    def upsert(self) -> None:
        rows = self.drawn(self.drawn_keys())
        self.table.upsert(rows)
        self.told(rows, "INSERT OR REPLACE INTO t SELECT * FROM rows")

    def update(self) -> None:
        rows = self.drawn(self.drawn_keys()).select(["id", "city", "paid"])
        self.table.update(rows)
        self.told(rows, "UPDATE t SET city = rows.city, paid = rows.paid FROM rows WHERE t.id = rows.id")

    def delete(self) -> None:
        rows = self.drawn(self.drawn_keys()).select(["id"])
        self.table.delete(rows["id"])
        self.told(rows, "DELETE FROM t WHERE id IN (SELECT id FROM rows)")

    def statement(self) -> None:
        low = self.rng.randrange(KEYS)
        for statement in (
            f"UPDATE t SET amount = amount * 2, city = 'Bern' WHERE id BETWEEN {low} AND {low + 9}",
            f"DELETE FROM t WHERE city = 'Rom' AND id BETWEEN {low} AND {low + 50}",
        ):
            self.session.sql(statement)
            self.judge.execute(statement)

    def compare(self, condition: str) -> None:
        query = f"SELECT id, city, amount, day, paid FROM t WHERE {condition} ORDER BY id"
        expected = self.judge.execute(query).fetchall()
        assert sorted(tuple(row.values()) for row in self.table.scan(condition).to_arrow().to_pylist()) == expected
        assert self.table.count(condition) == len(expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_changes_are_what_duckdb_makes_of_them(indexed: Judged, seed: int) -> None:
    twins = Twins(indexed, seed)
    conditions = ["city = 'Oslo'", "id < 700", "day = DATE '2024-01-09'", "city IS NULL", "paid", "amount > 7"]
    for step in range(120):
        twins.rng.choice([twins.insert, twins.upsert, twins.update, twins.delete, twins.statement])()
        if step % 11 == 0:
            twins.table.flush()
        if step % 4 == 0:
            twins.compare(twins.rng.choice(conditions))
    twins.compare("true")
    counts = {row["city"]: row["count"] for row in twins.table.group_count("city").to_arrow().to_pylist()}
    assert counts == dict(twins.judge.execute("SELECT city, count(*) FROM t GROUP BY city").fetchall())

"""Buffered updates by statements of SQL: each changes once, and its errors have our classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakemark
from stock_table import rows_of, stock_folder, values

if TYPE_CHECKING:
    from pathlib import Path


def test_statements_change_once_however_often_their_result_is_read(stock: lakemark.Table) -> None:
    session = lakemark.connect()
    session.register("t", stock)
    for statement, count in (
        ("INSERT INTO t (id, name) VALUES (10, 'ten'), (11, 'eleven')", 2),
        ("UPDATE t SET price = price + 1 WHERE id < 3", 3),
        ("DELETE FROM t WHERE name = 'ten'", 1),
        ("REPLACE INTO t (id, name) VALUES (11, 'again')", 1),
        (
            """MERGE INTO t USING (VALUES (1, 'm'), (50, 'm')) AS s (id, name) ON t.id = s.id
               WHEN MATCHED THEN UPDATE SET name = s.name
               WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)""",
            2,
        ),
    ):
        sequence = stock.snapshot.sequence
        done = session.sql(statement)
        assert sequence is not None
        assert stock.snapshot.sequence == sequence + 1, "done when sql() returns"
        for _ in range(2):
            assert values(done) == [(count,)]
        repr(done)
        assert stock.snapshot.sequence == sequence + 1
    assert rows_of(stock, "id < 3 OR id > 9", ["id", "name", "price"]) == [
        (0, "thing 0", 1.0),
        (1, "m", 2.5),
        (11, "again", None),
        (2, "thing 2", 4.0),
        (50, "m", None),
    ]


def test_sql_errors_have_our_classes(stock: lakemark.Table, tmp_path: Path) -> None:
    session = lakemark.connect()
    session.register("t", stock)
    with pytest.raises(lakemark.AlreadyExistsError, match="id = 3"):
        session.sql("INSERT INTO t (id) VALUES (3)")
    (tmp_path / "other").mkdir()
    other = stock_folder(tmp_path / "other")
    session.table(other, name="o")
    with pytest.raises(lakemark.InvalidInputError, match=r"has no key.*OPTIONS \(key 'COLUMN'\)"):
        session.sql("DELETE FROM o WHERE id = 1")
    assert (stock.count(), lakemark.Table(other).count()) == (10, 10)
    assert session.table(other, name="o", key="id").key == ("id",)
    assert values(session.sql("DELETE FROM o WHERE id = 1")) == [(1,)]


def test_a_key_is_declared_in_sql(folder: Path) -> None:
    session = lakemark.connect()
    create = f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{folder}'"
    session.sql(f"{create} OPTIONS (key 'id, name', alpha '2')")
    table = lakemark.Table(folder)
    assert table.key == ("id", "name")
    assert table.updates is not None
    assert table.updates.writes_bound == 1.0
    assert values(session.sql("UPDATE t SET n = 100 WHERE id >= 8")) == [(2,)]
    assert values(session.sql("SELECT sum(n) FROM t")) == [(228,)]
    with pytest.raises(lakemark.InvalidInputError, match="the key of the table is id, name already"):
        session.sql(f"{create.replace(' t ', ' u ')} OPTIONS (key 'id')")

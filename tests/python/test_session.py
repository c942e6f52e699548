"""`lakemark.connect()`: SQL, names, statements of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest

import lakemark

if TYPE_CHECKING:
    from conftest import Judged


def values(rows: lakemark.Rows) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in rows.to_arrow().to_pylist()]


def test_queries_over_a_marked_table_are_what_duckdb_says(marked: Judged) -> None:
    session = lakemark.connect()
    session.register("t", marked.table)
    for query in (
        "SELECT count(*) FROM t",
        "SELECT count(*) FROM t WHERE city = 'Oslo' OR city IS NULL",
        "SELECT city, count(*) AS n FROM t WHERE id < 2500 GROUP BY city ORDER BY city NULLS LAST",
        "SELECT id, day FROM t WHERE city = 'Rom' ORDER BY amount DESC, id LIMIT 5",
        "SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.city = 'Oslo' AND b.id < 100",
        "SELECT min(amount), max(amount), sum(amount) FROM t WHERE day = DATE '2024-03-01'",
    ):
        assert values(session.sql(query)) == marked.judge.execute(query).fetchall()


def test_table_names_itself_after_its_folder(marked: Judged) -> None:
    session = lakemark.connect()
    table = session.table(marked.folder)
    assert isinstance(table, lakemark.Table)
    assert values(session.sql("SELECT count(*) FROM orders")) == [(4000,)]
    session.table(marked.folder, name="other")
    assert values(session.sql("SELECT count(*) FROM other WHERE city = 'Wien'")) == [(marked.count("city = 'Wien'"),)]


def test_register_takes_arrow_streams_and_replaces_what_had_the_name(marked: Judged) -> None:
    session = lakemark.connect()
    session.register("t", pa.table({"id": [1, 2, 3]}))
    assert values(session.sql("SELECT sum(id) FROM t")) == [(6,)]
    session.register("t", marked.table)
    session.register("wanted", marked.table.scan("id IN (5, 6)", columns=["id"]))
    found = values(session.sql("SELECT t.id, t.city FROM t JOIN wanted ON t.id = wanted.id ORDER BY 1"))
    assert found == marked.rows(["id", "city"], "id IN (5, 6)")


def test_register_refuses_what_is_no_table(marked: Judged) -> None:
    session = lakemark.connect()
    assert marked.table is not None
    with pytest.raises((TypeError, ValueError)):
        session.register("t", 7)  # type: ignore[arg-type]


def test_names_are_exact_in_python_and_folded_in_sql(marked: Judged) -> None:
    session = lakemark.connect()
    session.register("Orders", marked.table)
    assert values(session.sql('SELECT count(*) FROM "Orders"')) == [(4000,)]
    with pytest.raises(lakemark.LakemarkError, match="orders"):
        session.sql("SELECT count(*) FROM Orders")


def test_our_statements_work_and_happen_once(plain: Judged) -> None:
    session = lakemark.connect()
    session.sql(f"CREATE EXTERNAL TABLE o STORED AS LAKEMARK LOCATION '{plain.folder}'")
    created = session.sql("CREATE INDEX by_city ON o USING bitmap (city)")
    assert [index.name for index in plain.table.indexes] == ["by_city"]
    repr(created)
    created.to_arrow()
    shown = session.sql("SHOW INDEXES FROM o").to_arrow().to_pylist()
    assert len(shown) == 1
    assert "by_city" in shown[0].values()
    assert "city" in shown[0].values()
    plain.table.build(progress=False)
    assert values(session.sql("SELECT count(*) FROM o WHERE city = 'Rom'")) == [(plain.count("city = 'Rom'"),)]
    session.sql("DROP INDEX by_city ON o")
    assert plain.table.indexes == []


def test_marks_can_be_switched_off(marked: Judged) -> None:
    session = lakemark.connect()
    session.register("t", marked.table)
    session.sql("SET lakemark.use_index = false")
    assert values(session.sql("SELECT count(*) FROM t WHERE city = 'Oslo'")) == [(marked.count("city = 'Oslo'"),)]


def test_explain_analyze_shows_once_and_as_often_as_asked(marked: Judged) -> None:
    session = lakemark.connect()
    session.register("t", marked.table)
    plan = session.sql("EXPLAIN ANALYZE SELECT amount FROM t WHERE city = 'Oslo'")
    assert "Lakemark" in plan.to_arrow().to_pylist()[0]["plan"]
    assert "Lakemark" in repr(plan)


def test_results_become_data_frames(marked: Judged) -> None:
    session = lakemark.connect()
    session.register("t", marked.table)
    frame = session.sql("SELECT id, city, day FROM t WHERE id < 3 ORDER BY id").to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["id"].tolist() == [0, 1, 2]
    assert frame["city"].tolist() == [None, "Rom", "Wien"]


def test_a_new_file_is_seen_by_the_next_statement(marked: Judged) -> None:
    session = lakemark.connect()
    session.register("t", marked.table)
    assert values(session.sql("SELECT count(*) FROM t WHERE city = 'Oslo'")) == [(marked.count("city = 'Oslo'"),)]
    (marked.folder / "part-8.parquet").write_bytes((marked.folder / "part-1.parquet").read_bytes())
    assert values(session.sql("SELECT count(*) FROM t WHERE city = 'Oslo'")) == [(marked.count("city = 'Oslo'"),)]

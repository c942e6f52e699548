"""`lakemark.connect()`: SQL, names, statements of ours."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Judged


def values(rows: lakemark.Rows) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in rows.to_arrow().to_pylist()]


def test_queries_over_a_indexed_table_are_what_duckdb_says(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("t", indexed.table)
    for query in (
        "SELECT count(*) FROM t",
        "SELECT count(*) FROM t WHERE city = 'Oslo' OR city IS NULL",
        "SELECT city, count(*) AS n FROM t WHERE id < 2500 GROUP BY city ORDER BY city NULLS LAST",
        "SELECT id, day FROM t WHERE city = 'Rom' ORDER BY amount DESC, id LIMIT 5",
        "SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.city = 'Oslo' AND b.id < 100",
        "SELECT min(amount), max(amount), sum(amount) FROM t WHERE day = DATE '2024-03-01'",
    ):
        assert values(session.sql(query)) == indexed.judge.execute(query).fetchall()


def test_table_names_itself_after_its_folder(indexed: Judged) -> None:
    session = lakemark.connect()
    table = session.table(indexed.folder)
    assert isinstance(table, lakemark.Table)
    assert values(session.sql("SELECT count(*) FROM orders")) == [(4000,)]
    session.table(indexed.folder, name="other")
    assert values(session.sql("SELECT count(*) FROM other WHERE city = 'Wien'")) == [(indexed.count("city = 'Wien'"),)]


def test_register_takes_arrow_streams_and_replaces_what_had_the_name(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("t", pa.table({"id": [1, 2, 3]}))
    assert values(session.sql("SELECT sum(id) FROM t")) == [(6,)]
    session.register("t", indexed.table)
    session.register("wanted", indexed.table.scan("id IN (5, 6)", columns=["id"]))
    found = values(session.sql("SELECT t.id, t.city FROM t JOIN wanted ON t.id = wanted.id ORDER BY 1"))
    assert found == indexed.rows(["id", "city"], "id IN (5, 6)")


def test_register_refuses_what_is_no_table(indexed: Judged) -> None:
    session = lakemark.connect()
    assert indexed.table is not None
    with pytest.raises((TypeError, ValueError)):
        session.register("t", 7)  # type: ignore[arg-type]


def test_names_are_exact_in_python_and_folded_in_sql(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("Orders", indexed.table)
    assert values(session.sql('SELECT count(*) FROM "Orders"')) == [(4000,)]
    with pytest.raises(lakemark.LakemarkError, match="orders"):
        session.sql("SELECT count(*) FROM Orders")


def test_settings_are_shown_as_they_are_set() -> None:
    session = lakemark.connect()
    session.sql("SET lakemark.share = off")
    assert values(session.sql("SHOW lakemark.share")) == [("lakemark.share", "off")]
    ours = "SELECT value FROM information_schema.df_settings WHERE name = 'lakemark.use_index'"
    assert values(session.sql(ours)) == [("true",)]


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


def test_indexes_can_be_switched_off(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("t", indexed.table)
    session.sql("SET lakemark.use_index = false")
    assert values(session.sql("SELECT count(*) FROM t WHERE city = 'Oslo'")) == [(indexed.count("city = 'Oslo'"),)]


def test_slow_queries_are_logged_without_their_values(indexed: Judged, caplog: pytest.LogCaptureFixture) -> None:
    session = lakemark.connect()
    session.register("t", indexed.table)
    session.sql("SET lakemark.slow_query_ms = 0")
    found = values(session.sql("SELECT id FROM t WHERE city = 'Oslo' AND amount > 3"))
    shown = repr(session.sql("SELECT id FROM t WHERE city = 'Rom'"))
    first, second = [record.getMessage() for record in caplog.records if record.name == "lakemark.slow_queries"]
    assert "query=SELECT id FROM t WHERE city = ? AND amount > ?," in first
    assert f"rows={len(found)}," in first
    assert "no_index(amount)" in first
    assert "Oslo" not in first
    # So are queries that a notebook shows.
    assert "more rows" in shown
    assert "query=SELECT id FROM t WHERE city = ?," in second
    caplog.clear()
    session.sql("SET lakemark.slow_query_ms = off")
    values(session.sql("SELECT id FROM t WHERE city = 'Oslo' AND amount > 3"))
    assert caplog.records == []


def test_explain_analyze_shows_once_and_as_often_as_asked(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("t", indexed.table)
    plan = session.sql("EXPLAIN ANALYZE SELECT amount FROM t WHERE city = 'Oslo'")
    assert "Lakemark" in plan.to_arrow().to_pylist()[0]["plan"]
    assert "Lakemark" in repr(plan)


def test_results_become_data_frames(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("t", indexed.table)
    frame = session.sql("SELECT id, city, day FROM t WHERE id < 3 ORDER BY id").to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["id"].tolist() == [0, 1, 2]
    assert frame["city"].tolist() == [None, "Rom", "Wien"]


def test_a_new_file_is_seen_by_the_next_statement(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("t", indexed.table)
    assert values(session.sql("SELECT count(*) FROM t WHERE city = 'Oslo'")) == [(indexed.count("city = 'Oslo'"),)]
    (indexed.folder / "part-8.parquet").write_bytes((indexed.folder / "part-1.parquet").read_bytes())
    assert values(session.sql("SELECT count(*) FROM t WHERE city = 'Oslo'")) == [(indexed.count("city = 'Oslo'"),)]


def test_parameters_stand_for_values_in_queries_and_in_changes(tmp_path: Path) -> None:
    days = [dt.date(2026, 6, day) for day in (1, 2, 3)]
    numbers = pa.array([10, 20, None], pa.int32())
    pq.write_table(pa.table({"id": [1, 2, 3], "n": numbers, "d": days, "s": ["a", "b", None]}), tmp_path / "a.parquet")
    session = lakemark.connect()
    session.table(tmp_path, name="t", key="id")

    def ask(sql: str, parameters: Any) -> list[list[Any]]:
        return [list(row.values()) for row in session.sql(sql, parameters).to_arrow().to_pylist()]

    assert ask("SELECT s FROM t WHERE id = $1", [2]) == [["b"]]
    assert ask("SELECT s FROM t WHERE id = 2", []) == ask("SELECT s FROM t WHERE id = 2", {}) == [["b"]]
    assert ask("SELECT id FROM t WHERE id IN ($1, $2) AND d >= $3 ORDER BY id", (1, 3, days[0])) == [[1], [3]]
    assert ask("SELECT count(*) FROM t WHERE s = $s OR d = $d", {"s": "a' OR true --", "d": days[2]}) == [[1]]
    assert ask("SELECT count(*) FROM t WHERE n = $1", [None]) == [[0]]
    # A number between two integers is neither of them.
    assert ask("SELECT count(*) FROM t WHERE n = $1 OR n < $2", [10.5, 10.5]) == [[1]]
    assert ask("SELECT $1 + n FROM t WHERE id = 1", [decimal.Decimal("0.25")]) == [[decimal.Decimal("10.25")]]
    assert ask("SELECT id FROM t WHERE id = $1", [pa.scalar(1, pa.int8())]) == [[1]]
    assert ask("INSERT INTO t (id, n, d, s) VALUES ($1, $2, $3, $4)", [4, 40, days[0], "O'Hare"]) == [[1]]
    named = {"id": 5, "n": None, "d": days[1], "s": "x"}
    assert ask("INSERT INTO t (id, n, d, s) VALUES ($id, $n, $d, $s)", named) == [[1]]
    assert ask("DELETE FROM t WHERE id = $id AND s = $s", {"id": 5, "s": "x"}) == [[1]]
    assert ask("SELECT x FROM (VALUES ($1), ($2)) v(x) ORDER BY x", [10.5, 1]) == [[1.0], [10.5]]
    assert ask("SELECT count(*) FROM t JOIN (VALUES (1), ($1)) v(x) ON t.n = v.x", [10]) == [[1]]
    assert ask("SELECT $1", [pa.scalar(1, pa.time64("ns"))]) != [[None]]
    assert ask("UPDATE t SET n = $n, s = $s WHERE id = $id", {"id": 2, "n": 21, "s": None}) == [[1]]
    assert ask("DELETE FROM t WHERE id = $1", [1]) == [[1]]
    rows = session.sql("SELECT id, n, s FROM t ORDER BY id").to_arrow().to_pydict()
    assert rows == {"id": [2, 3, 4], "n": [21, None, 40], "s": [None, None, "O'Hare"]}


@pytest.mark.parametrize(
    ("sql", "parameters", "said"),
    [
        ("SELECT $1 + $2", [1], r"no value is given for \$2"),
        ("SELECT $1", [1, 2], r"a value is given for \$2, which the statement does not have"),
        ("SELECT $name", {"other": 1}, r"no value is given for \$name"),
        ("SELECT 1", [1], r"a value is given for \$1"),
        ("SHOW INDEXES FROM t", [1], "take parameters"),
        ("SELECT * FROM (VALUES (1), ($1)) v(x)", [10.5], r"10.5 is no Int64, the type of what \$1 stands among"),
        ("CREATE VIEW v AS SELECT $1", [1], "take parameters"),
        ("PREPARE p AS SELECT $1", [1], "take parameters"),
        ("SELECT $1", "x", r"give \['x'\]"),
        ("SELECT $1", [object()], r"parameter \$1 is no value"),
        ("SELECT $1", [2**80], r"parameter \$1 is no value"),
    ],
)
def test_wrong_parameters_are_told(sql: str, parameters: Any, said: str) -> None:
    with pytest.raises(lakemark.InvalidInputError, match=said):
        lakemark.connect().sql(sql, parameters)

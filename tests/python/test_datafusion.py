"""The second door: an indexed table in the session of the `datafusion` package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

datafusion = pytest.importorskip("datafusion")

if TYPE_CHECKING:
    from conftest import Judged


def values(context: datafusion.SessionContext, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in context.sql(query).to_arrow_table().to_pylist()]


@pytest.fixture
def context(indexed: Judged) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    context.register_table("t", indexed.table)
    return context


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM t",
        "SELECT count(*) FROM t WHERE city = 'Oslo'",
        "SELECT count(*) FROM t WHERE city IN ('Rom', 'Wien') AND amount > 100",
        "SELECT id, city FROM t WHERE id BETWEEN 995 AND 1005 ORDER BY id",
        "SELECT city, count(*) FROM t WHERE day > DATE '2024-03-01' GROUP BY city ORDER BY city NULLS LAST",
        "SELECT count(*) FROM t a JOIN t b ON a.id = b.id WHERE a.city = 'Oslo'",
        "SELECT id FROM t WHERE city IS NULL ORDER BY id LIMIT 3",
    ],
)
def test_answers_are_what_duckdb_says(indexed: Judged, context: datafusion.SessionContext, query: str) -> None:
    assert values(context, query) == indexed.judge.execute(query).fetchall()


def test_filters_arrive_at_our_scan(context: datafusion.SessionContext) -> None:
    plan = values(context, "EXPLAIN SELECT amount FROM t WHERE city = 'Oslo'")
    text = "\n".join(str(row[1]) for row in plan)
    assert "city = " in text
    assert "FilterExec" not in text


def test_a_new_file_is_seen_by_the_next_statement(indexed: Judged, context: datafusion.SessionContext) -> None:
    (indexed.folder / "part-8.parquet").write_bytes((indexed.folder / "part-1.parquet").read_bytes())
    assert values(context, "SELECT count(*) FROM t WHERE city = 'Oslo'") == [(indexed.count("city = 'Oslo'"),)]


def test_an_error_of_ours_is_an_error_there(indexed: Judged, context: datafusion.SessionContext) -> None:
    path = indexed.folder / "part-8.parquet"
    path.write_bytes(b"PAR1 no PAR1")
    with pytest.raises(Exception, match=r"part-8\.parquet"):
        values(context, "SELECT count(amount) FROM t")

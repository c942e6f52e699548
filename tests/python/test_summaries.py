"""`group_count`, `min_max`, `sum_mean` and `count_distinct` of a table, with and without indexes.

DuckDB is the judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakemark
from conftest import write_orders

if TYPE_CHECKING:
    from conftest import Judged

CONDITIONS = [None, "city = 'Oslo'", "id BETWEEN 900 AND 2100", "paid AND id >= 10", "city IS NULL", "city = 'Nowhere'"]


def judged_rows(judged: Judged, sql: str) -> list[tuple[Any, ...]]:
    return sorted(judged.judge.execute(sql).fetchall(), key=repr)


def rows_of(rows: lakemark.Rows) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows.to_arrow().to_pylist()), key=repr)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("use_index", [True, False])
def test_summaries_are_what_duckdb_says(indexed: Judged, condition: str | None, use_index: bool) -> None:
    where = f"WHERE {condition or 'true'}"
    for columns in (["city"], ["city", "day"], ["paid", "city"], ["id"]):
        names = ", ".join(columns)
        expected = judged_rows(indexed, f"SELECT {names}, count(*) FROM t {where} GROUP BY {names}")
        assert rows_of(indexed.table.group_count(columns, condition, use_index=use_index)) == expected, columns
    for column in ("city", "id", "day", "amount"):
        expected = judged_rows(indexed, f"SELECT min({column}), max({column}) FROM t {where}")
        assert rows_of(indexed.table.min_max(column, condition, use_index=use_index)) == expected, column
        if column in ("id", "amount"):
            expected = judged_rows(indexed, f"SELECT sum({column})::DOUBLE, avg({column}) FROM t {where}")[0]
            totals = rows_of(indexed.table.sum_mean(column, condition, use_index=use_index))[0]
            assert totals == pytest.approx(expected), column
        number = judged_rows(indexed, f"SELECT count(DISTINCT {column}) FROM t {where}")[0][0]
        assert indexed.table.count_distinct(column, condition, use_index=use_index) == number, column


def test_files_without_indexes_are_added(indexed: Judged) -> None:
    write_orders(indexed.folder, range(9, 10))
    expected = judged_rows(indexed, "SELECT city, count(*) FROM t GROUP BY city")
    assert rows_of(indexed.table.group_count("city")) == expected
    assert rows_of(indexed.table.min_max("id")) == judged_rows(indexed, "SELECT min(id), max(id) FROM t")
    assert indexed.table.count_distinct("id") == judged_rows(indexed, "SELECT count(DISTINCT id) FROM t")[0][0]


def test_results_have_names_and_types(indexed: Judged) -> None:
    counts = indexed.table.group_count("city").to_arrow()
    assert counts.column_names == ["city", "count"]
    assert str(counts.schema.field("count").type) == "int64"
    extremes = indexed.table.min_max("day").to_arrow()
    assert extremes.column_names == ["min", "max"]
    assert [str(field.type) for field in extremes.schema] == ["date32[day]", "date32[day]"]


def test_the_plan_names_the_operator_that_asked_the_index(indexed: Judged) -> None:
    session = lakemark.connect()
    session.register("orders", indexed.table)
    text = str(session.sql("EXPLAIN SELECT city, count(*) FROM orders GROUP BY city").to_arrow().to_pylist())
    assert "IndexAggregateExec: columns=[city]" in text


def test_mistakes_are_typed(indexed: Judged) -> None:
    with pytest.raises(lakemark.NotFoundError, match="its columns are id, city"):
        indexed.table.group_count("town")
    with pytest.raises(lakemark.NotFoundError):
        indexed.table.min_max("City")
    with pytest.raises(lakemark.InvalidInputError):
        indexed.table.sum_mean("city")
    with pytest.raises(lakemark.InvalidInputError):
        indexed.table.group_count([])
    with pytest.raises(lakemark.InvalidInputError):
        indexed.table.count_distinct("city", "town = 1")

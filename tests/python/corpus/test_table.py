"""The corpus itself: its table, its predicates and its recorded row counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus import cases
from corpus.cases import CASES, COLUMNS, make_table

if TYPE_CHECKING:
    import duckdb


def test_generator_and_checked_in_files_hold_the_same_rows() -> None:
    table = make_table.make_table()
    start = 0
    for file in make_table.FILES:
        held = pq.read_table(cases.TABLE / file.name)
        made = table.slice(start, file.rows).select(held.column_names)
        assert set(table.column_names) - set(held.column_names) == set(file.lacks)
        for name in held.column_names:
            # repr tells -0.0 from 0.0 and makes NaN equal to itself.
            assert repr(plain(held.column(name))) == repr(plain(made.column(name))), (file.name, name)
        start += file.rows
    assert start == table.num_rows == 5000


def plain(column: pa.ChunkedArray) -> list[object]:
    if pa.types.is_date64(column.type):
        # Parquet has days only: some versions of pyarrow give them back as days.
        column = column.cast(pa.date32())
    kind = column.type
    if pa.types.is_temporal(kind):
        # Parquet has no seconds: what was written as seconds comes back as milliseconds.
        per_unit = {"s": 1_000, "ms": 1}.get(getattr(kind, "unit", ""), 1)
        bits = pa.int32() if kind.bit_width == 32 else pa.int64()
        return [None if value is None else value * per_unit for value in column.cast(bits).to_pylist()]
    return column.to_pylist()


def test_files_differ_in_row_groups_and_carry_a_page_index() -> None:
    groups = []
    for file in make_table.FILES:
        metadata = pq.ParquetFile(cases.TABLE / file.name).metadata
        groups.append(metadata.num_row_groups)
        assert metadata.row_group(0).column(0).has_column_index
        assert metadata.row_group(0).column(0).has_offset_index
    assert groups == [4, 3, 1, 9]


def test_every_column_but_the_id_has_nulls_and_is_named_by_a_predicate() -> None:
    table = make_table.make_table()
    assert [name for name in table.column_names if table.column(name).null_count == 0] == ["id"]
    named = set().union(*(case.columns for case in CASES))
    assert set(COLUMNS) - named == set()


def test_ids_are_unique_and_there_are_enough_predicates() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({case.sql for case in CASES}) == len(CASES)
    assert len(CASES) >= 300


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_judge_still_counts_the_recorded_rows(case: cases.Case, judge: duckdb.DuckDBPyConnection) -> None:
    if case.rows is None:
        assert "duckdb" in case.differs
        return
    sql = f"SELECT count(*) FROM t WHERE {case.duckdb or case.sql}"
    assert judge.execute(sql).fetchone() == (case.rows,)

"""Results: every way out gives the same rows."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakemark

if TYPE_CHECKING:
    from conftest import Judged

COLUMNS = ["id", "city", "amount", "day", "paid"]
CONDITION = "city = 'Wien' AND id > 3000"


@pytest.fixture
def rows(indexed: Judged) -> lakemark.Rows:
    return indexed.table.scan(CONDITION, columns=COLUMNS)


def test_pyarrow_reads_the_stream(indexed: Judged, rows: lakemark.Rows) -> None:
    found = pa.table(rows)
    assert found.column_names == COLUMNS
    assert sorted(zip(*found.to_pydict().values(), strict=True), key=repr) == indexed.rows(COLUMNS, CONDITION)


def test_pyarrow_reads_batch_by_batch(indexed: Judged) -> None:
    reader = pa.RecordBatchReader.from_stream(indexed.table.scan(columns=["id"]))
    ids: list[int] = []
    for batch in reader:
        ids += batch["id"].to_pylist()
    assert sorted(ids) == list(range(4000))


def test_a_reader_that_stops_early_stops_the_query(indexed: Judged) -> None:
    for _ in range(20):
        reader = pa.RecordBatchReader.from_stream(indexed.table.scan(columns=["id"]))
        assert reader.read_next_batch().num_rows > 0
        del reader
    gc.collect()
    assert indexed.table.count() == 4000


def test_to_arrow_to_pandas_and_to_polars_agree_with_the_judge(indexed: Judged, rows: lakemark.Rows) -> None:
    expected = indexed.rows(COLUMNS, CONDITION)
    table = rows.to_arrow()
    assert sorted((tuple(row.values()) for row in table.to_pylist()), key=repr) == expected
    frame = rows.to_pandas()
    assert list(frame.columns) == COLUMNS
    assert sorted(frame["id"]) == sorted(row[0] for row in expected)
    assert set(frame["city"]) == {"Wien"}
    polars = rows.to_polars()
    assert sorted(polars.rows(), key=repr) == expected


def test_polars_and_duckdb_read_the_stream_themselves(indexed: Judged, rows: lakemark.Rows) -> None:
    expected = indexed.count(CONDITION)
    assert pl.DataFrame(rows).height == expected
    assert duckdb.sql("SELECT count(*), min(city) FROM rows").fetchall() == [(expected, "Wien")]


def test_rows_are_computed_anew_each_time(rows: lakemark.Rows) -> None:
    first, second = rows.to_arrow().sort_by("id"), rows.to_arrow().sort_by("id")
    assert first.num_rows > 0
    assert first.equals(second)


def test_no_columns_still_have_a_number_of_rows(indexed: Judged) -> None:
    batches = pa.RecordBatchReader.from_stream(indexed.table.scan("city = 'Rom'", columns=[]))
    assert sum(batch.num_rows for batch in batches) == indexed.count("city = 'Rom'")


def test_the_schema_is_known_before_any_row(rows: lakemark.Rows) -> None:
    assert rows.schema.names == COLUMNS
    assert rows.schema["paid"].type == "Boolean"


def test_repr_shows_the_first_rows_and_that_there_are_more(indexed: Judged) -> None:
    shown = repr(indexed.table.scan("id < 20", columns=["id", "city"]))
    lines = shown.splitlines()
    assert [part.strip() for part in lines[0].split("|")] == ["id", "city"]
    assert len(lines) == 13
    assert lines[-1] == "… more rows"
    assert "NULL" in shown
    few = repr(indexed.table.scan("id = 9", columns=["id", "city"])).splitlines()
    assert [part.strip() for part in few[2].split("|")] == ["9", "Rom"]
    assert len(few) == 3


def test_notebooks_get_a_table_without_a_hole_for_html(indexed: Judged) -> None:
    html = indexed.table.scan("id = 9", columns=["id", "city"])._repr_html_()
    assert "<td>Rom</td>" in html
    session = lakemark.connect()
    assert "<td>&lt;script&gt;</td>" in session.sql("SELECT '<script>' AS x")._repr_html_()


def test_an_error_in_the_middle_of_a_stream_keeps_its_kind(plain: Judged) -> None:
    session = lakemark.connect()
    session.register("orders", plain.table)
    rows = session.sql("SELECT CAST(city AS INT) AS n FROM orders WHERE city IS NOT NULL")
    with pytest.raises(lakemark.InvalidInputError, match=r"Oslo|Rom|Wien|Zürich"):
        rows.to_arrow()
    with pytest.raises((pa.ArrowException, OSError), match=r"Oslo|Rom|Wien|Zürich"):
        pa.table(rows)

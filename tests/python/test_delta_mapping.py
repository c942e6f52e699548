"""Delta tables with column mapping by name and by id; Python says what is right."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from mapped_delta import ALL, COLUMNS, commit, field, metadata, write_mapped

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    write_mapped(tmp_path)
    return tmp_path


def scanned(table: lakemark.Table, condition: str | None, *, use_index: bool = True) -> list[dict[str, Any]]:
    found = table.scan(condition, use_index=use_index).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_every_column_has_the_name_that_the_table_shows(mapped: Path) -> None:
    table = lakemark.Table(mapped)
    assert [column.name for column in table.schema] == ["id", "city", "place", "many", "day"]
    assert scanned(table, None) == ALL
    assert table.scan("place['x'] = 3", columns=["id"]).to_arrow().num_rows == sum(
        row["place"]["x"] == 3 for row in ALL
    )


@pytest.mark.parametrize(
    ("condition", "is_right"),
    [
        ("city = 'Oslo'", lambda row: row["city"] == "Oslo"),
        ("city IS NULL AND day = 'day1'", lambda row: row["city"] is None and row["day"] == "day1"),
        ("id BETWEEN 490 AND 510", lambda row: 490 <= row["id"] <= 510),
        ("id < 5 OR city = 'Rom'", lambda row: row["id"] < 5 or row["city"] == "Rom"),
        ("city = 'Wien' AND place['x'] > 5", lambda row: row["city"] == "Wien" and row["place"]["x"] > 5),
    ],
)
def test_answers_are_the_same_with_and_without_indexes(mapped: Path, condition: str, is_right: Any) -> None:
    expected = [row for row in ALL if is_right(row)]
    assert expected
    table = lakemark.Table(mapped)
    assert scanned(table, condition) == expected
    for column in ("city", "id"):
        assert table.create_index(column, progress=False).coverage == 1.0
    assert scanned(table, condition) == scanned(table, condition, use_index=False) == expected
    assert table.count(condition) == table.count(condition, use_index=False) == len(expected)
    assert table.verify().ok


def test_a_renamed_column_keeps_its_index_and_a_dropped_one_loses_it(mapped: Path) -> None:
    table = lakemark.Table(mapped)
    for column in ("city", "id"):
        table.create_index(column, progress=False)
    session = lakemark.connect()
    session.register("before", table)
    assert session.sql("SELECT count(*) AS n FROM before WHERE city = 'Oslo'").to_arrow()["n"].to_pylist() == [
        sum(row["city"] == "Oslo" for row in ALL)
    ]
    renamed = (COLUMNS[0], field("town", "col-2", "string"), field("city", "col-9", "long"), *COLUMNS[3:])
    commit(mapped, 1, metadata(*renamed))
    table = lakemark.Table(mapped)
    assert [(index.column, index.coverage) for index in table.indexes] == [("town", 1.0), ("id", 1.0)]
    oslo = [row["id"] for row in ALL if row["city"] == "Oslo"]
    for use_index in (True, False):
        found = scanned(table, "town = 'Oslo'", use_index=use_index)
        assert [row["id"] for row in found] == oslo
        assert {row["city"] for row in found} == {None}
        assert table.count("city IS NULL", use_index=use_index) == len(ALL)
        assert table.count("city = 3", use_index=use_index) == 0
    assert table.explain("town = 'Oslo'").leaves[0].index == "city_bitmap"


@pytest.mark.parametrize("state", ["buffered", "flushed", "merged"])
def test_changes_keep_to_the_stored_names(mapped: Path, state: str) -> None:
    # The nested columns are gone from the table, not from its files: updates of such tables are for flat columns.
    commit(mapped, 1, metadata(COLUMNS[0], COLUMNS[1], COLUMNS[4]))
    rows_now = [{name: row[name] for name in ("id", "city", "day")} for row in ALL]
    table = lakemark.Table(mapped)
    table.declare_key("id")
    changed = [{**row, "city": "Bern"} for row in rows_now[::9]]
    added = [{"id": 10_000 + number, "city": "Rom", "day": "day2"} for number in range(20)]
    kinds = pa.schema(table.scan(limit=0).to_arrow().schema)
    table.upsert(pa.Table.from_pylist(changed + added, kinds))
    if state == "merged":
        table.flush()
    table.delete(pa.table({"id": [row["id"] for row in rows_now[4::50]]}))
    table.update(pa.table({"id": [1, 2, 999_999], "city": ["Graz"] * 3}))
    if state != "buffered":
        table.flush()
    now = {row["id"]: row for row in [*rows_now, *changed, *added]}
    for row in rows_now[4::50]:
        del now[row["id"]]
    for key in (1, 2):
        now[key] = {**now[key], "city": "Graz"}
    expected = [now[key] for key in sorted(now)]

    def check(table: lakemark.Table, expected: list[dict[str, Any]], city: str) -> None:
        for use_index in (True, False):
            assert scanned(table, None, use_index=use_index) == expected
            graz = [row for row in expected if row[city] == "Graz"]
            assert scanned(table, f"{city} = 'Graz'", use_index=use_index) == graz
            assert scanned(table, "id = 18", use_index=use_index) == [row for row in expected if row["id"] == 18]
            bern = sum(row[city] == "Bern" for row in expected)
            assert table.count(f"{city} = 'Bern'", use_index=use_index) == bern > 0

    check(table, expected, "city")
    check(lakemark.Table(mapped), expected, "city")
    # Another column takes the name, also of the rows that wait.
    renamed = (COLUMNS[0], field("town", "col-2", "string"), field("city", "col-9", "long"), COLUMNS[4])
    commit(mapped, 2, metadata(*renamed))
    expected = [{"id": row["id"], "town": row["city"], "city": None, "day": row["day"]} for row in expected]
    check(table, expected, "town")
    check(lakemark.Table(mapped), expected, "town")
    table.migrate()
    check(table, expected, "town")
    shutil.rmtree(mapped / "_lakemark")
    check(lakemark.Table(mapped), expected, "town")
    names = {tuple(pq.read_schema(path).names) for path in mapped.rglob("*.parquet") if "part-0000" in path.name}
    assert names == {("col-1", "col-2", "col-9")}


def test_a_table_that_maps_columns_by_id_is_read_and_migrated(tmp_path: Path) -> None:
    write_mapped(tmp_path, mode="id")
    table = lakemark.Table(tmp_path)
    for column in ("city", "id"):
        assert table.create_index(column, progress=False).coverage == 1.0
    oslo = [row for row in ALL if row["city"] == "Oslo"]
    assert scanned(table, None) == ALL
    for use_index in (True, False):
        assert scanned(table, "city = 'Oslo'", use_index=use_index) == oslo
    # The nested columns are gone from the table, not from its files: updates of such tables are for flat columns.
    commit(tmp_path, 1, metadata(COLUMNS[0], COLUMNS[1], COLUMNS[4], mode="id"))
    table = lakemark.Table(tmp_path, key="id")
    table.upsert(pa.table({"id": [3, 10_000], "city": ["Graz", "Graz"], "day": ["day0", "day1"]}))
    table.migrate()
    for use_index in (True, False):
        found = scanned(lakemark.Table(tmp_path), "city = 'Graz'", use_index=use_index)
        assert [(row["id"], row["day"]) for row in found] == [(3, "day0"), (10_000, "day1")]
    # Other readers find columns by their ids, so that files have them.
    [schema, *_] = [pq.read_schema(path) for path in tmp_path.rglob("*.parquet") if "part-0000" in path.name]
    ids = {column["metadata"]["delta.columnMapping.physicalName"]: column["metadata"] for column in COLUMNS}
    for field_of_file in schema:
        number = ids[field_of_file.name]["delta.columnMapping.id"]
        assert field_of_file.metadata[b"PARQUET:field_id"] == str(number).encode()


def test_a_file_without_ids_is_refused_in_a_table_that_maps_by_id(tmp_path: Path) -> None:
    write_mapped(tmp_path, mode="id")
    path = tmp_path / "part-1.parquet"
    rows = pq.read_table(path)
    bare = [pa.field(column.name, column.type) for column in rows.schema]
    pq.write_table(rows.cast(pa.schema(bare)), path)
    added = {"path": path.name, "partitionValues": {"col-5": "day1"}, "size": path.stat().st_size}
    commit(tmp_path, 1, {"add": {**added, "modificationTime": 1_700_000_000_001, "dataChange": True}})
    with pytest.raises(lakemark.UnsupportedError, match=r"part-1.parquet .* without an id.*copy the table"):
        lakemark.Table(tmp_path).scan().to_arrow()

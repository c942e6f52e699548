"""Indexes on fields of structs; DuckDB says what is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 500

CONDITIONS = [
    ("place['city'] = 'Wien'", "place.city = 'Wien'"),
    ("place['city'] IS NULL", "place.city IS NULL"),
    ("place['city'] <> 'Rom' AND id < 700", "place.city <> 'Rom' AND id < 700"),
    ("place['at']['x'] BETWEEN 3 AND 5", "place.at.x BETWEEN 3 AND 5"),
    (
        "NOT (place['at']['x'] IN (1, 2)) OR place['city'] LIKE 'W%'",
        "NOT (place.at.x IN (1, 2)) OR place.city LIKE 'W%'",
    ),
]


def places(part: int) -> pa.Table:
    """One file: some places are null, others have no city or no point, and some points have no x."""

    def place(n: int) -> dict[str, Any] | None:
        if n % 9 == 0:
            return None
        point = None if n % 4 == 0 else {"x": None if n % 5 == 0 else n % 8, "y": n / 2}
        return {"city": None if n % 7 == 0 else ("Oslo", "Rom", "Wien")[n % 3], "at": point}

    ids = range(part * ROWS, (part + 1) * ROWS)
    point = pa.struct({"x": pa.int32(), "y": pa.float64()})
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "place": pa.array([place(n) for n in ids], pa.struct({"city": pa.string(), "at": point})),
            "place.city": pa.array([f"column {n % 2}" for n in ids]),
            "tags": pa.array([tags(n) for n in ids], pa.map_(pa.string(), pa.string())),
        }
    )


def tags(n: int) -> list[tuple[str, str | None]] | None:
    """A map: null in some rows, without a color in others."""
    if n % 13 == 0:
        return None
    color = [] if n % 3 == 0 else [("color", None if n % 5 == 0 else ("red", "green")[n % 2])]
    return [("size", str(n % 4)), *color]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in range(3):
        pq.write_table(places(part), tmp_path / f"part-{part}.parquet", row_group_size=150)
    return tmp_path


def test_fields_are_indexed_and_asked_like_columns(folder: Path) -> None:
    table = lakemark.Table(folder)
    made = [table.create_index(name, progress=False) for name in ('"place".city', "place.at.x", "place.city")]
    assert [index.column for index in made] == ['"place"."city"', "place.at.x", "place.city"]
    assert [index.name for index in made] == ['"place"."city"_bitmap', "place.at.x_bitmap", "place.city_bitmap"]
    assert all(index.coverage == 1.0 for index in made)
    judge = duckdb.connect()
    judge.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{folder}/*.parquet')")
    for ours, theirs in CONDITIONS:
        row = judge.execute(f"SELECT count(*) FROM t WHERE {theirs}").fetchone()
        assert row is not None
        assert table.count(ours) == row[0], ours
        ids = judge.execute(f"SELECT id FROM t WHERE {theirs} ORDER BY id").fetchall()
        found = pa.table(table.scan(ours, columns=["id"])).column("id").to_pylist()
        assert sorted(found) == [row[0] for row in ids], ours
    groups = pa.table(table.group_count("place.at.x", "place['city'] = 'Wien'")).to_pylist()
    expected = judge.execute("SELECT place.at.x, count(*) FROM t WHERE place.city = 'Wien' GROUP BY 1").fetchall()
    assert {(row["place.at.x"], row["count"]) for row in groups} == set(expected)
    report = table.explain("place['at']['x'] = 3")
    assert [(leaf.column, leaf.index) for leaf in report.leaves] == [("place.at.x", "place.at.x_bitmap")]
    assert table.count("\"place.city\" = 'column 1'") == 3 * ROWS // 2
    assert table.verify().ok


def test_values_of_maps_are_indexed_by_their_key(folder: Path) -> None:
    table = lakemark.Table(folder)
    assert table.create_index("tags.color", progress=False).column == "tags.color"
    values = [dict(tags(n) or []).get("color") for n in range(3 * ROWS)]
    assert table.count("tags['color'] = 'red'") == values.count("red") > 0
    assert table.count("tags['color'] IS NULL") == values.count(None)
    assert table.explain("tags['color'] = 'red'").leaves[0].index == "tags.color_bitmap"
    groups = pa.table(table.group_count("tags.color")).to_pylist()
    assert {row["tags.color"]: row["count"] for row in groups} == {
        value: values.count(value) for value in ("red", "green", None)
    }
    assert table.verify().ok
    with pytest.raises(lakemark.UnsupportedError, match=r"index the values of a key, as in map\.key"):
        table.create_index("tags")


def test_what_is_no_field_is_an_error_that_names_the_fields(folder: Path) -> None:
    table = lakemark.Table(folder)
    with pytest.raises(
        lakemark.NotFoundError, match=r"inside of them are \"place\"\.\"city\", place\.at\.x, place\.at\.y"
    ):
        table.create_index("place.town")
    with pytest.raises(lakemark.UnsupportedError, match=r"index a field of it: place\.at\.x, place\.at\.y"):
        table.create_index("place.at")

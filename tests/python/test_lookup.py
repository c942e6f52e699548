"""`Table.lookup` and `lakemark lookup`; DuckDB says what is right."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakemark
from conftest import FILES, ROWS_PER_FILE, write_orders

if TYPE_CHECKING:
    from conftest import Judged

COLUMNS = ["id", "city"]


def looked_up(judged: Judged, keys: object, on: str) -> list[tuple[object, ...]]:
    found = judged.table.lookup(keys, COLUMNS, on=on).to_arrow().to_pylist()
    without = judged.table.lookup(keys, COLUMNS, on=on, use_index=False).to_arrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, without))
    return sorted((tuple(row[name] for name in COLUMNS) for row in found), key=repr)


@pytest.mark.parametrize(
    ("on", "keys", "condition"),
    [
        ("id", 1234, "id = 1234"),
        ("id", [1, 3999, 4000, None], "id IN (1, 3999, 4000)"),
        ("id", range(10, 20), "id BETWEEN 10 AND 19"),
        ("id", pa.array([7, 8], pa.uint8()), "id IN (7, 8)"),
        ("city", "Oslo", "city = 'Oslo'"),
        ("city", ["Rom", "Nowhere"], "city = 'Rom'"),
        ("city", [], "false"),
    ],
)
def test_keys_give_the_rows_of_the_condition(plain: Judged, on: str, keys: object, condition: str) -> None:
    expected = plain.rows(COLUMNS, condition)
    assert looked_up(plain, keys, on) == expected
    plain.table.create_index(on, using="key", progress=False)
    assert looked_up(plain, keys, on) == expected


def test_the_column_of_the_only_key_index_is_meant(plain: Judged) -> None:
    with pytest.raises(lakemark.NotFoundError, match="--using key"):
        plain.table.lookup(5)
    index = plain.table.create_index("id", using="key", progress=False)
    assert (index.name, index.kind, index.encoding) == ("id_key", "key", "packed")
    assert plain.table.lookup(5).to_arrow()["id"].to_pylist() == [5]
    assert [field.name for field in plain.table.lookup(5, ["city"]).to_arrow().schema] == ["city"]
    assert "id" in repr(plain.table.lookup(5))
    plain.table.create_index("city", using="key", progress=False)
    with pytest.raises(lakemark.InvalidInputError, match=r"\(city\) and \(id\)"):
        plain.table.lookup(5)


def test_an_index_gives_the_columns_that_it_includes(plain: Judged) -> None:
    index = plain.table.create_index("id", using="key", include=["city", "amount"], progress=False)
    assert (index.name, index.kind, index.options) == ("id_key", "key", {"include": "city,amount"})
    columns = ["id", "city", "amount"]
    expected = plain.rows(columns, "id IN (7, 8, 2001)")

    def found(*, use_index: bool = True) -> list[tuple[object, ...]]:
        rows = plain.table.lookup([7, 8, 2001, -1], columns, use_index=use_index).to_arrow().to_pylist()
        return sorted((tuple(row[name] for name in columns) for row in rows), key=repr)

    assert found() == found(use_index=False) == expected
    # What was appended is read until a build has seen it.
    write_orders(plain.folder, range(FILES, FILES + 1))
    new = FILES * ROWS_PER_FILE + 5
    assert plain.table.lookup([7, new], columns).to_arrow().num_rows == 2
    plain.table.build(progress=False)
    assert plain.table.lookup([7, new], columns).to_arrow().num_rows == 2


def test_included_columns_are_counted_and_tested_without_the_data(plain: Judged) -> None:
    plain.table.create_index("id", using="key", include=["city", "amount"], progress=False)
    session = lakemark.connect()
    session.table(plain.folder, name="t")
    for condition in (
        "id IN (5, 6, 7, 777, 3001) AND city = 'Rom'",
        "id BETWEEN 100 AND 140 AND amount > 50 AND city IS NOT NULL",
        "id IN (1, 2) AND city = 'Nowhere'",
    ):
        assert plain.table.count(condition) == plain.table.count(condition, use_index=False) == plain.count(condition)
        for column in ("id", "city", "amount"):
            expected = plain.judge.execute(f"SELECT min({column}), max({column}) FROM t WHERE {condition}").fetchone()
            found = plain.table.min_max(column, condition).to_arrow().to_pylist()
            assert [tuple(row.values()) for row in found] == [expected]
        rows = session.sql(f"SELECT id, amount FROM t WHERE {condition}").to_arrow().to_pylist()
        assert sorted((tuple(row.values()) for row in rows), key=repr) == plain.rows(["id", "amount"], condition)
        explained = session.sql(f"EXPLAIN SELECT id, amount FROM t WHERE {condition}").to_arrow().to_pylist()
        assert "covering_index=id_key" in str(explained)
        assert "rows_rechecked=0" in str(explained)


@pytest.mark.parametrize("include", [[], ["city", "id"]])
def test_hashes_of_texts_give_the_rows_of_the_texts(plain: Judged, include: list[str]) -> None:
    conditions = ["city = 'Oslo'", "city IN ('Rom', 'Nowhere')", "city <> 'Oslo'", "city > 'P'", "city IS NULL"]
    table = plain.table
    index = table.create_index("city", using="key", hashed=True, hash_bits=8, include=include, progress=False)
    stored = {"hashed": "true", "hash_bits": "8"} | ({"include": "city,id"} if include else {})
    assert (index.name, index.kind, index.options) == ("city_key", "key", stored)
    for condition in [*conditions, "city = 'Oslo' AND id < 500", "NOT city IN ('Oslo', 'Rom')"]:
        expected = plain.rows(COLUMNS, condition)
        assert table.count(condition) == len(expected)
        found = table.scan(condition, columns=COLUMNS).to_arrow().to_pylist()
        assert sorted((tuple(row[name] for name in COLUMNS) for row in found), key=repr) == expected
    assert looked_up(plain, ["Rom", "Nowhere"], "city") == plain.rows(COLUMNS, "city = 'Rom'")


def test_what_cannot_be_included_is_an_error(plain: Judged) -> None:
    with pytest.raises(lakemark.NotFoundError, match="no column town"):
        plain.table.create_index("id", using="key", include="town", progress=False)
    with pytest.raises(lakemark.InvalidInputError, match="a column of the key"):
        plain.table.create_index("id", using="key", include=["id"], progress=False)
    with pytest.raises(lakemark.InvalidInputError, match="no option include"):
        plain.table.create_index("city", using="bitmap", include=["id"], progress=False)
    # The option stands for the kind.
    assert plain.table.create_index("id", include="city", progress=False).kind == "key"


def test_keys_of_several_columns_are_tuples(plain: Judged) -> None:
    on = ["city", "id"]
    some = plain.rows(["city", "id"], "id IN (5, 6, 777)")
    keys = [(city, number) for city, number in some if city is not None]
    assert len(keys) >= 2
    (city, number), (_, other) = keys[0], keys[1]
    condition = " OR ".join(f"city = '{city}' AND id = {number}" for city, number in keys)
    wrong = [("Nowhere", number), (None, other), None]
    expected = plain.rows(COLUMNS, condition)

    def found(keys: object, on: list[str] | None = None, *, use_index: bool = True) -> list[tuple[object, ...]]:
        rows = plain.table.lookup(keys, COLUMNS, on=on, use_index=use_index).to_arrow().to_pylist()
        return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=repr)

    assert found([*keys, *wrong], on) == expected
    index = plain.table.create_index(on, progress=False)
    assert (index.name, index.kind, index.column, index.columns) == ("city_id_key", "key", "city, id", ("city", "id"))
    assert found([*keys, *wrong]) == found([*keys, *wrong], use_index=False) == expected
    assert found([{"id": number, "city": city} for city, number in keys]) == expected
    assert found([(number, city) for city, number in keys], ["id", "city"]) == expected
    assert found([f"{city},{number}" for city, number in keys]) == expected
    report = plain.table.explain(f"id = {number} AND city = '{city}'")
    assert [leaf.index for leaf in report.leaves] == ["city_id_key"]
    assert (report.rows_exact, report.rows_rechecked) == (plain.table.count(f"id = {number}"), 0)
    with pytest.raises(lakemark.InvalidInputError, match="tuples of one length"):
        plain.table.lookup([(city, number), city])
    with pytest.raises(lakemark.InvalidInputError, match="a value for each of these columns: keys of 3 values"):
        plain.table.lookup([(city, number, 1)])
    with pytest.raises(lakemark.UnsupportedError, match="is of the kind key or links, and bitmap was asked for"):
        plain.table.create_index(on, using="bitmap", progress=False)
    command = [sys.executable, "-m", "lakemark", "lookup", str(plain.folder), f"{city},{number}", "--columns", "id"]
    done = subprocess.run([*command, "--format", "json"], check=True, capture_output=True, text=True)
    assert [row["id"] for row in json.loads(done.stdout)] == [number]


def test_bad_keys_are_worded_errors(plain: Judged) -> None:
    for keys, text in ((["a", 1], "one type"), ("x", "not be looked up|cannot be looked up")):
        with pytest.raises(lakemark.InvalidInputError, match=text):
            plain.table.lookup(keys, on="id")
    with pytest.raises(lakemark.InvalidInputError, match="columns must be a list"):
        plain.table.lookup(1, "id", on="id")
    with pytest.raises(lakemark.InvalidInputError, match="there is no option encoding"):
        plain.table.create_index("id", using="key", encoding="equality", progress=False)


def test_the_command_prints_the_rows(plain: Judged) -> None:
    plain.table.create_index("id", using="key", progress=False)
    command = [sys.executable, "-m", "lakemark", "lookup", str(plain.folder), "17", "3000", "--columns", "id"]
    done = subprocess.run([*command, "--format", "json"], check=True, capture_output=True, text=True)
    assert sorted(row["id"] for row in json.loads(done.stdout)) == [17, 3000]


def test_rows_of_a_key_column_are_verified(plain: Judged) -> None:
    for column in ("id", "city", "day"):
        plain.table.create_index(column, using="key", progress=False)
    report = plain.table.verify()
    assert [index.files_ok for index in report.indexes] == [4, 4, 4]

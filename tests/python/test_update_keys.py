"""The key by which a table takes updates: how it is declared, and what is none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from stock_table import STOCK, names

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_is_declared_the_first_time_and_told_ever_after(folder: Path) -> None:
    table = lakemark.Table(folder)
    assert (table.key, table.updates, table.snapshot.sequence, table.snapshot.key) == (None, None, None, None)
    assert lakemark.Table(folder, key="id").key == ("id",)
    assert lakemark.Table(folder, key=["id"]).key == table.key == ("id",)
    assert table.declare_key("id", progress=False) is False
    assert [(index.name, index.kind, index.rows) for index in table.indexes] == [("id_key", "key", 10)]
    with pytest.raises(lakemark.InvalidInputError, match="the key of the table is id already"):
        lakemark.Table(folder, key="name")
    assert (table.snapshot.sequence, table.snapshot.key) == (0, ("id",))


def test_a_key_may_have_several_columns_and_options(folder: Path) -> None:
    table = lakemark.Table(folder)
    assert table.declare_key(["name", "id"], progress=False, alpha=0.5, cache_bytes=1 << 22, page_bytes=4096) is True
    info = table.updates
    assert info is not None
    # M is the root of 1,024 pages; alpha M are the buffer as long as there is no run.
    assert (info.key, info.cache_limit, info.buffer_limit) == (("name", "id"), 1 << 22, 16 * 4096)
    assert info.writes_bound == 2 - 0.25 * 0.25
    assert table.delete([("thing 3", 3), ("thing 3", 4)]).rows == 2
    assert table.delete({"name": ["thing 5"], "id": [5]}).rows == 1
    assert sorted(names(table)) == [0, 1, 2, 4, 6, 7, 8, 9]
    with pytest.raises(lakemark.InvalidInputError, match=r"each key is a tuple \(name, id\)"):
        table.delete([1, 2])
    with pytest.raises(lakemark.InvalidInputError, match=r"give rows with the columns \(name, id\)"):
        table.delete(pa.array([1, 2]))


def test_a_delete_of_keys_lists_no_data_files(stock: lakemark.Table) -> None:
    # What was written just now may still be changing, and is listed each time.
    time.sleep(0.05)
    assert stock.schema.names[0] == "id"
    before = stock.stats()["lakemark_listings_total"]
    assert isinstance(before, float)
    assert (stock.delete([3]).rows, stock.delete(pa.array([4])).rows, stock.key) == (1, 1, ("id",))
    # Stats list the files themselves, for what is covered.
    assert stock.stats()["lakemark_listings_total"] == before + 1
    assert 3 not in names(stock)


@pytest.mark.parametrize(
    ("columns", "options", "kind", "says"),
    [
        ("moon", {}, lakemark.NotFoundError, "there is no column moon"),
        ("price", {}, lakemark.UnsupportedError, "price is Float64"),
        ([], {}, lakemark.InvalidInputError, "a key needs a column"),
        (["id", "id"], {}, lakemark.InvalidInputError, "id stands in the key twice"),
        ("id", {"alpha": 3}, lakemark.InvalidInputError, "alpha is 3"),
        ("id", {"colour": "blue"}, lakemark.InvalidInputError, "there is no option colour"),
        ("id", {"cache_bytes": "much"}, lakemark.InvalidInputError, "cache_bytes is a number of bytes"),
    ],
)
def test_keys_that_are_none(
    folder: Path, columns: Any, options: dict[str, object], kind: type[Exception], says: str
) -> None:
    table = lakemark.Table(folder)
    with pytest.raises(kind, match=says):
        table.declare_key(columns, progress=False, **options)
    assert table.key is None


def test_columns_that_tell_no_rows_apart_are_no_key(folder: Path) -> None:
    pq.write_table(pa.table({"id": [3, None]}), folder / "c.parquet")
    table = lakemark.Table(folder)
    with pytest.raises(lakemark.InvalidInputError, match=r"id has rows without a value in c\.parquet"):
        table.declare_key("id", progress=False)
    pq.write_table(pa.table({"id": [3]}), folder / "c.parquet")
    with pytest.raises(lakemark.InvalidInputError, match=r"id = 3 is there twice, in a\.parquet and c\.parquet"):
        table.declare_key("id", progress=False)
    assert table.key is None


def test_declaring_a_key_says_how_far_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lakemark.Table(folder).declare_key("id")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("key: 10 of 10 rows in ")


def test_a_table_without_a_key_takes_no_change(folder: Path) -> None:
    table = lakemark.Table(folder)
    for change in (lambda: table.insert(STOCK), lambda: table.delete([1]), table.flush):
        with pytest.raises(lakemark.InvalidInputError, match=r"has no key.*Table\.declare_key"):
            change()
    glob = lakemark.Table(f"{folder}/*.parquet")
    with pytest.raises(lakemark.InvalidInputError, match="store"):
        glob.declare_key("id", progress=False)

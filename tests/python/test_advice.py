"""Advice on indexes, and the encoding that is chosen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 300_000


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300,000 sales: `shop` of 1,000 and `customer` of 60,000 in no order, `id` ascends, `kind` has three values."""
    folder = tmp_path_factory.mktemp("sales")
    draw = np.random.default_rng(11)
    table = pa.table(
        {
            "id": pa.array(np.arange(ROWS)),
            "shop": pa.array(draw.integers(0, 1000, ROWS)),
            "customer": pa.array(draw.integers(0, 60_000, ROWS)),
            "kind": pa.array(draw.choice(["a", "b", "c"], ROWS)),
            "price": pa.array(draw.random(ROWS)),
        }
    )
    pq.write_table(table, folder / "part-0.parquet", row_group_size=100_000)
    return folder


def test_queries_say_which_indexes_to_build(sales: Path, tmp_path: Path) -> None:
    table = lakemark.Table(sales, store=tmp_path / "store")
    table.create_index("kind", progress=False)
    advice = table.advise(
        [
            "SELECT count(*) FROM sales WHERE shop = 7",
            "SELECT price FROM sales WHERE customer = 5",
            "SELECT nothing FROM sales",
        ]
    )
    assert (advice.rows, advice.sampled_rows, advice.queries) == (ROWS, ROWS, 2)
    assert sorted(index.column for index in advice.indexes) == ["customer", "shop"]
    assert advice.unused == ["kind_bitmap"]
    assert [problem.line for problem in advice.problems] == [3]
    assert "nothing" in advice.problems[0].problem
    assert all(gain.bytes_after < gain.bytes_now / 2 for gain in advice.gains)
    assert "indexes to build:" in str(advice)
    assert json.loads(json.dumps(advice.to_dict()))["indexes"][0]["column"] == advice.indexes[0].column
    html = advice._repr_html_()
    assert html.count("<svg") == 2
    assert "line 3" in html
    for proposal in advice.indexes:
        index = table.create_index(proposal.column, encoding=proposal.encoding, progress=False)
        assert index.bytes == pytest.approx(proposal.predicted_bytes, rel=0.15)
        assert proposal.predicted_bytes == pytest.approx(index.bytes, rel=0.15)
    assert table.advise("SELECT count(*) FROM sales WHERE shop = 7").indexes == []
    # An index over several columns is of use to a query that asks for the first of them.
    for columns in (["shop", "id"], ["id", "shop"]):
        table.create_index(columns, progress=False)
    unused = table.advise("SELECT count(*) FROM sales WHERE shop = 7").unused
    assert "id_shop_key" in unused
    assert "shop_id_key" not in unused


def test_columns_that_lookups_read_are_proposed_to_ride_along(sales: Path, tmp_path: Path) -> None:
    folder, draw, rows = tmp_path / "tokens", np.random.default_rng(5), 200_000
    folder.mkdir()
    columns = {"price": draw.random(rows), "kind": draw.choice(["a", "b", "c"], rows), "weight": draw.random(rows)}
    pq.write_table(pa.table({"token": draw.permutation(rows), **columns}), folder / "part-0.parquet")
    table = lakemark.Table(folder)
    lookups = [
        "SELECT price, kind FROM t WHERE token = 77",
        "SELECT count(*) FROM t WHERE token IN (1, 2) AND price > 0.5",
    ]
    advice = table.advise(lookups)
    (proposal,) = (index for index in advice.indexes if index.column == "token")
    assert (proposal.kind, proposal.include) == ("key", ["kind", "price"])
    assert "kind, price lookups read no data" in proposal.reason
    assert "token INCLUDE (kind, price)" in str(advice)
    assert "token INCLUDE (kind, price)" in advice._repr_html_()
    built = table.create_index("token", using="key", include=proposal.include, progress=False)
    assert proposal.predicted_bytes == pytest.approx(built.bytes, rel=0.15)
    # What rides along counts from now on.
    after = table.advise(lookups)
    assert "token" not in [index.column for index in after.indexes]
    then = {gain.line: gain.bytes_after for gain in advice.gains}
    assert all(gain.bytes_now == pytest.approx(then[gain.line], rel=0.1) for gain in after.gains)
    # Whoever reads nearly all columns, or has no key, is served by the data.
    everything = lakemark.Table(sales, store=tmp_path / "store").advise("SELECT * FROM sales WHERE shop = 7")
    assert all(index.include == [] for index in everything.indexes)


def test_the_tables_of_a_session_are_advised_by_their_joins(sales: Path, tmp_path: Path) -> None:
    customers = tmp_path / "customers"
    customers.mkdir()
    names = [f"customer {number}" for number in range(60_000)]
    pq.write_table(pa.table({"customer": pa.array(range(60_000)), "name": names}), customers / "part-0.parquet")
    session = lakemark.connect()
    session.table(sales, name="sales", store=tmp_path / "store")
    session.table(sales, name="again", store=tmp_path / "store")
    session.table(customers, name="customers", store=tmp_path / "store-of-customers")
    joined = "SELECT sum(price) FROM {} s JOIN customers c ON s.customer = c.customer WHERE name = 'customer 7'"
    advice = session.advise([joined.format("sales"), "SELECT nothing FROM sales", joined.format("again")])
    # One table under two names is advised once.
    assert sorted(advice) == ["customers", "sales"]
    assert [index.column for index in advice["sales"].indexes] == ["customer"]
    assert advice["sales"].queries == 2
    assert [[problem.line for problem in of.problems] for of in advice.values()] == [[2], [2]]
    assert "nothing" in advice["sales"].problems[0].problem
    # All customers leave all sales: nothing is gained by an index.
    everything = session.advise("SELECT sum(price) FROM sales s JOIN customers c ON s.customer = c.customer")
    assert everything["sales"].indexes == []


def test_without_queries_every_column_is_looked_at(sales: Path, tmp_path: Path) -> None:
    table = lakemark.Table(sales, store=tmp_path / "store")
    advice = table.advise()
    assert (advice.queries, advice.gains, advice.unused) == (0, [], [])
    assert "customer" in [index.column for index in advice.indexes]
    saved = [index.saved_bytes for index in advice.indexes]
    assert saved == sorted(saved, reverse=True)
    assert table.indexes == []


def test_the_choice_is_shown_with_its_reason(sales: Path, tmp_path: Path) -> None:
    table = lakemark.Table(sales, store=tmp_path / "store")
    chosen = table.create_index("shop", progress=False)
    assert (chosen.encoding, chosen.chosen_by) == ("equality", "auto")
    assert chosen.reason is not None
    assert chosen.reason.startswith("300000 of 300000 rows have about 1000 values; ")
    assert chosen.options == {}
    named = table.create_index("kind", encoding="binary", progress=False)
    assert (named.encoding, named.chosen_by, named.reason) == ("binary", "user", None)
    assert named.predicted_bytes == pytest.approx(named.bytes, rel=0.15)
    leaf = table.explain("shop = 7").leaves[0]
    assert (leaf.encoding, leaf.choice) == ("equality", chosen.reason)


def test_a_column_of_unique_values_is_indexed_with_a_warning(sales: Path, tmp_path: Path) -> None:
    table = lakemark.Table(sales, store=tmp_path / "store")
    with pytest.warns(lakemark.LakemarkWarning, match="nearly every row has a value of its own"):
        index = table.create_index("id", using="bitmap", progress=False)
    assert (index.encoding, index.rows) == ("equality", ROWS)
    assert table.count("id = 77") == 1

"""TPC-H with online updates: `make bench NAME=updates-tpch SCALE=1`.

Figure 3.24 of MaSM (Athanassoulis 2014, section 3.5.3): the 22 queries without updates, and with updates in two ways.
They are rewritten in place (`merge` of delta-rs) while queries run, or they are buffered, also while more arrive.
Orders anywhere are inserted, deleted and modified together with their lines, a third each. DuckDB, over the same tables
with the changes merged into them, is the judge of every answer.
"""

from __future__ import annotations

import argparse
import math
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import matplotlib as mpl
import measure
import pyarrow as pa
import tpc
from updates_table import CACHE, timed
from updates_writer import Writer

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

mpl.use("Agg")
import matplotlib.pyplot as plt

KEYS = {"orders": ["o_orderkey"], "lineitem": ["l_orderkey", "l_linenumber"]}
ORDER = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
MODIFIED = {
    "orders": "* EXCLUDE (draw) REPLACE (o_totalprice + 1 AS o_totalprice)",
    "lineitem": "* EXCLUDE (draw) REPLACE ((l_quantity + 1)::DECIMAL(15, 2) AS l_quantity)",
}
# Of 32 order keys in a row eight are taken, so that the next sixteen are free.
NEW_KEY = 16
BATCH_ORDERS = 100
IN_PLACE = """
import sys
import deltalake, duckdb
from updates_tpch import KEYS, batch_of
folder, orders, lineitem, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
print("ready", flush=True)
for number in range(10**9):
    for table, place in (("orders", orders), ("lineitem", lineitem)):
        on = " AND ".join(f"t.{key} = s.{key}" for key in KEYS[table])
        batch = batch_of(folder, table, number, count)
        merge = deltalake.DeltaTable(place).merge(batch, on, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    print(number + 1, flush=True)
"""
BUFFERED = """
import sys, time
import lakemark
from updates_tpch import batch_of
folder, orders, lineitem, count, pause = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])
stores = {"orders": orders, "lineitem": lineitem}
tables = {name: lakemark.Table(f"{folder}/{name}", store=store) for name, store in stores.items()}
print("ready", flush=True)
for number in range(10**9):
    for name, table in tables.items():
        table.upsert(batch_of(folder, name, number, count))
    print(number + 1, flush=True)
    time.sleep(pause)
"""


def data_of(folder: Path | str, table: str) -> str:
    """The Parquet files of a table, for DuckDB."""
    return f"read_parquet('{folder}/{table}/*.parquet')"


def changes(folder: Path, table: str, share: float) -> dict[str, pa.Table]:
    """Orders anywhere and what belongs to them: keys that are deleted, rows that are modified, rows that are new."""
    key, data = ORDER[table], data_of(folder, table)
    connection = duckdb.connect()
    # A number below 1000 that every order has, so that its lines are drawn with it.
    connection.sql(f"CREATE VIEW drawn AS SELECT *, hash({key}) % 1000000 / 1000.0 AS draw FROM {data}")

    def part(select: str, number: int) -> pa.Table:
        low, high = (share * 1000 * bound / 3 for bound in (number, number + 1))
        return connection.sql(f"SELECT {select} FROM drawn WHERE draw >= {low} AND draw < {high}").to_arrow_table()

    return {
        "deleted": part(", ".join(KEYS[table]), 0),
        "modified": part(MODIFIED[table], 1),
        "inserted": part(f"* EXCLUDE (draw) REPLACE ({key} + {NEW_KEY} AS {key})", 2),
    }


def batch_of(folder: str, table: str, number: int, count: int) -> pa.Table:
    """So many orders, or their lines, that come while queries run: as the files have them."""
    key, data = ORDER[table], data_of(folder, table)
    low, high = duckdb.sql(f"SELECT min({key}), max({key}) FROM {data}").fetchall()[0]
    first = low + number * 7919 * 32 % max(high - low, 1)
    return duckdb.sql(f"SELECT * FROM {data} WHERE {key} >= {first} AND {key} < {first + 4 * count}").to_arrow_table()


def session_of(folders: dict[str, Path], stores: dict[str, Path]) -> Callable[[str], list[Any]]:
    """Runs queries over all tables in a session of its own."""
    session = lakemark.connect()
    for name, folder in folders.items():
        store = f"OPTIONS (store '{stores[name]}')" if name in stores else ""
        session.sql(f"CREATE EXTERNAL TABLE {name} STORED AS LAKEMARK LOCATION '{folder}' {store}")

    def ask(sql: str) -> list[Any]:
        return [tuple(row.values()) for row in pa.table(session.sql(sql)).to_pylist()]

    return ask


def judge(folder: Path, changed: dict[str, dict[str, pa.Table]]) -> Callable[[str], list[Any]]:
    """DuckDB over the tables, with the changes merged into two of them."""
    connection = duckdb.connect()
    for name in tpc.tables(folder):
        data = data_of(folder, name)
        if name in changed:
            parts, key = changed[name], ", ".join(KEYS[name])
            for part, rows in parts.items():
                connection.register(f"{name}_{part}", rows)
            data = (
                f"(SELECT * FROM {data} ANTI JOIN {name}_deleted USING ({key}) ANTI JOIN {name}_modified USING ({key}) "
                f"UNION ALL SELECT * FROM {name}_modified UNION ALL SELECT * FROM {name}_inserted)"
            )
        connection.sql(f"CREATE VIEW {name} AS SELECT * FROM {data}")
    return lambda sql: connection.execute(sql).fetchall()


def same(ours: list[Any], theirs: list[Any]) -> bool:
    """Whether two answers are equal but for the order of rows and the digits that DataFusion cuts off an average."""

    def equal(one: object, other: object) -> bool:
        if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
            return math.isclose(float(one), float(other), rel_tol=1e-4, abs_tol=1e-6)
        return str(one) == str(other)

    def by_text(row: tuple[Any, ...]) -> tuple[list[str], list[float]]:
        numbers = [float(value) for value in row if isinstance(value, int | float | Decimal)]
        return [str(value) for value in row if not isinstance(value, int | float | Decimal)], numbers

    pairs = zip(sorted(ours, key=by_text), sorted(theirs, key=by_text), strict=False)
    return len(ours) == len(theirs) and all(all(map(equal, *pair)) for pair in pairs)


def run(scale: float, share: float, rounds: int, folder: Path, scratch: Path) -> dict[str, Any]:
    """Seconds of every query by every scheme."""
    queries = tpc.generate("tpch", folder, scale)
    folders = {name: folder / name for name in tpc.tables(folder)}
    plain = {name: scratch / f"plain-{name}" for name in KEYS}
    stores = {name: scratch / f"pending-{name}" for name in KEYS}
    changed = {name: changes(folder, name, share) for name in KEYS}
    pending = {}
    for name, keys in KEYS.items():
        lakemark.Table(folders[name], store=plain[name], key=keys)
        table = lakemark.Table(folders[name], store=stores[name], key=keys)
        table.delete(changed[name]["deleted"])
        table.upsert(changed[name]["modified"])
        table.insert(changed[name]["inserted"])
        table.flush()
        pending[name] = sum(len(rows) for rows in changed[name].values())
    asks = {"without": session_of(folders, plain), "pending": session_of(folders, stores)}
    for number, sql in enumerate(queries):
        for name, judges in (("without", judge(folder, {})), ("pending", judge(folder, changed))):
            if not same(ours := asks[name](sql), theirs := judges(sql)):
                raise AssertionError(f"query {number + 1}, {name}: {ours[:3]} is not {theirs[:3]}")
    seconds = [timed(asks, sql, rounds) for sql in queries]
    in_place, rate = while_rewritten(folder, folders, scratch, queries, rounds)
    pause = max(1 / max(rate, 0.01), 0.1)
    writer = Writer(BUFFERED, folder, stores["orders"], stores["lineitem"], BATCH_ORDERS, pause)
    try:
        arriving = [timed({"arriving": asks["pending"]}, sql, rounds) for sql in queries]
    finally:
        buffered_rate = writer.stop()
    return {
        "pending_rows": pending,
        "batches_per_second": {"in place": rate, "arriving": buffered_rate},
        "queries": [
            one | {"in place": other} | more for one, other, more in zip(seconds, in_place, arriving, strict=True)
        ],
    }


def while_rewritten(
    folder: Path, folders: dict[str, Path], scratch: Path, queries: list[str], rounds: int
) -> tuple[list[float], float]:
    """Seconds of every query over Delta tables that another process rewrites, and its batches a second."""
    copies = dict(folders)
    for name in KEYS:
        copies[name] = scratch / f"delta-{name}"
        shutil.copytree(folders[name], copies[name])
        deltalake.convert_to_deltalake(str(copies[name]))
    stores = {name: scratch / f"delta-{name}-store" for name in KEYS}
    writer = Writer(IN_PLACE, folder, copies["orders"], copies["lineitem"], BATCH_ORDERS)
    try:
        # Opened for each query: data files are replaced all the time.
        def newest(sql: str) -> list[Any]:
            return session_of(copies, stores)(sql)

        seconds = [timed({"in place": newest}, sql, max(rounds // 2, 1))["in place"] for sql in queries]
    finally:
        rate = writer.stop()
    return seconds, rate


def report(result: dict[str, Any]) -> None:
    """Prints the table of figure 3.24."""
    schemes = ("in place", "pending", "arriving")
    lines = [
        [f"q{number + 1}", f"{row['without'] * 1e3:.0f} ms", *[f"{row[name] / row['without']:.2f}" for name in schemes]]
        for number, row in enumerate(result["queries"])
    ]
    total = {name: sum(row[name] for row in result["queries"]) for name in ("without", *schemes)}
    lines.append(
        ["all", f"{total['without'] * 1e3:.0f} ms", *[f"{total[name] / total['without']:.2f}" for name in schemes]]
    )
    measure.print_table(["query", "without", *schemes], lines)
    print({key: value for key, value in result.items() if key not in ("queries", "machine")})


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the seconds of every query, as the figure has them."""
    figure, axes = plt.subplots(figsize=(10, 4))
    for place, name in enumerate(("without", "in place", "pending", "arriving")):
        places = [number + (place - 2) * 0.2 for number in range(len(result["queries"]))]
        axes.bar(places, [row[name] for row in result["queries"]], 0.2, align="edge", label=name)
    axes.set(ylabel="seconds", title=f"TPC-H at scale {result['scale']} with online updates")
    axes.set_xticks(range(len(result["queries"])), [f"q{number + 1}" for number in range(len(result["queries"]))])
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-H: 1 is 6,000,000 lines")
    parser.add_argument("--share", type=float, default=0.01, help="part of the orders that is changed")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for the JSON and the plot")
    arguments = parser.parse_args()
    folder, scratch = CACHE / f"tpch-{arguments.scale:g}", CACHE / f"tpch-{arguments.scale:g}-scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    result = {
        "machine": measure.machine(),
        "scale": arguments.scale,
        "share": arguments.share,
        **run(arguments.scale, arguments.share, arguments.rounds, folder, scratch),
    }
    shutil.rmtree(scratch)
    report(result)
    measure.publish(arguments.results, f"updates-tpch-{arguments.scale:g}", result, plot)


if __name__ == "__main__":
    main()

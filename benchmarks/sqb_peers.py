"""What the Set Query Benchmark is measured beside: each engine at its best setting, over the same rows.

Each function takes the folder of table BENCH and returns a function from the SQL text of a count to the count. Engines
with files of their own keep them beside the table, so that they are made once.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import polars as pl
import pyarrow.dataset as pads
import sqb_table
from kept import kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Ask = Callable[[str], int]


# Lance keeps bitmaps for columns of few values and trees for the others.
LANCE_BITMAP_VALUES = 1_000


def data_files(folder: Path) -> list[str]:
    """The Parquet files of the table."""
    return sorted(str(path) for path in folder.glob("*.parquet"))


def datafusion_parquet(folder: Path) -> Ask:
    """DataFusion's own package; without filter pushdown, which is faster here."""
    context = datafusion.SessionContext()
    context.register_parquet("bench", str(folder))
    return lambda sql: context.sql(sql).collect()[0].column(0)[0].as_py()


def duckdb_parquet(folder: Path) -> Ask:
    """DuckDB on the Parquet files."""
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW bench AS SELECT * FROM read_parquet({data_files(folder)})")
    return lambda sql: connection.execute(sql).fetchone()[0]


def duckdb_native(folder: Path) -> Ask:
    """DuckDB on a table of its own format."""
    copy = folder.with_name(f"{folder.name}-duckdb")
    with kept(copy) as is_missing:
        connection = duckdb.connect(str(copy / "bench.duckdb"))
        if is_missing:
            connection.execute(f"CREATE TABLE bench AS SELECT * FROM read_parquet({data_files(folder)})")
            connection.execute("CHECKPOINT")
    return lambda sql: connection.execute(sql).fetchone()[0]


def polars_parquet(folder: Path) -> Ask:
    """Polars on the Parquet files, lazily."""
    context = pl.SQLContext(bench=pl.scan_parquet(data_files(folder)))
    return lambda sql: context.execute(sql).collect()["n"][0]


def lance_indexed(folder: Path) -> Ask:
    """Lance on a data set of its own format, with a scalar index on every column, through its own counting call."""
    import lance

    copy = folder.with_name(f"{folder.name}-lance")
    path = str(copy / "bench.lance")
    with kept(copy) as is_missing:
        if is_missing:
            made = lance.write_dataset(pads.dataset(data_files(folder)).scanner(), path)
            for column, values in {"KSEQ": None, **sqb_table.CARDINALITIES}.items():
                made.create_scalar_index(column, "BITMAP" if values and values <= LANCE_BITMAP_VALUES else "BTREE")
    dataset = lance.dataset(path)
    return lambda sql: dataset.count_rows(filter=sql.split(" WHERE ")[1].replace('"', ""))


def lance_version() -> str | None:
    """The version of Lance, which `make bench NAME=sqb` installs; None without it."""
    if importlib.util.find_spec("lance") is None:
        return None
    import lance

    version: Any = lance.__version__
    return str(version)


def peers(folder: Path) -> dict[str, Ask]:
    """All of them, by name; Lance where it is installed."""
    found = {
        "datafusion": datafusion_parquet(folder),
        "duckdb": duckdb_parquet(folder),
        "duckdb native": duckdb_native(folder),
        "polars": polars_parquet(folder),
    }
    if lance_version() is None:
        print("Lance is not installed and is left out: pip install --requirement benchmarks/requirements.txt")
        return found
    return {**found, "lance": lance_indexed(folder)}

"""TPC-H and TPC-DS: their tables as Parquet and their queries, by DuckDB's generators.

The generators come with one version of DuckDB only, so that they run in a process of its own by the Python that
LAKEMARK_TPC_PYTHON names: `make` puts one beside the other environments.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    Name = Literal["tpch", "tpcds"]

# Columns of TPC-H's facts, other than keys, that conditions are about.
FILTERED = (
    *("l_shipdate", "l_commitdate", "l_receiptdate", "l_discount", "l_quantity", "l_returnflag", "l_shipmode"),
    *("l_shipinstruct", "o_orderdate", "o_orderstatus"),
)

# What generates a share of the tables: TPC-H in parts, so that not all of a large scale is in memory.
GENERATE = """
import json, sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path
import duckdb
name, folder, scale = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
steps = max(int(scale), 1) if name == "tpch" else 1
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
extension = f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
connection.execute(f"LOAD '{files('duckdb_extension_' + name) / extension}'")
generator = {"tpch": "dbgen", "tpcds": "dsdgen"}[name]
for step in range(steps):
    parts = f", children={steps}, step={step}" if steps > 1 else ""
    connection.execute(f"CALL {generator}(sf={scale}{parts})")
    for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        (folder / table).mkdir(parents=True, exist_ok=True)
        target = folder / table / f"part-{step:03}.parquet"
        if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
            connection.execute(f"COPY {table} TO '{target}' (COMPRESSION zstd, ROW_GROUP_SIZE 1048576)")
        connection.execute(f"DROP TABLE {table}")
queries = connection.execute(f"SELECT query FROM {name}_queries() ORDER BY query_nr").fetchall()
(folder / "queries.json").write_text(json.dumps([query.strip().rstrip(";") for (query,) in queries]))
"""


def generate(name: Name, folder: Path, scale: float) -> list[str]:
    """Writes the tables to `<folder>/<table>/part-*.parquet` unless they are there; returns the queries."""
    queries = folder / "queries.json"
    if not queries.exists():
        python = os.environ.get("LAKEMARK_TPC_PYTHON")
        if python is None:
            raise RuntimeError("LAKEMARK_TPC_PYTHON names no Python with DuckDB's generators: run it by make")
        subprocess.run([python, "-c", GENERATE, name, str(folder), str(scale)], check=True)
    return list(json.loads(queries.read_text(encoding="utf-8")))


def tables(folder: Path) -> list[str]:
    """The tables that were written."""
    return sorted(path.name for path in folder.iterdir() if any(path.glob("*.parquet")))

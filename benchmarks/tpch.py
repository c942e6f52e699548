"""TPC-H: its tables as Parquet and its 22 queries, by DuckDB's generator.

The generator comes with one version of DuckDB only, so that it runs in a process of its own by the Python that
LAKEMARK_TPCH_PYTHON names: `make` puts one beside the other environments.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
GENERATE = """
import json, sys
from importlib.resources import files
from pathlib import Path
import duckdb
folder, scale = Path(sys.argv[1]), float(sys.argv[2])
steps = max(int(scale), 1)
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
extension = f"extensions/v{duckdb.__version__}/tpch.duckdb_extension"
connection.execute(f"LOAD '{files('duckdb_extension_tpch') / extension}'")
for step in range(steps):
    parts = f", children={steps}, step={step}" if steps > 1 else ""
    connection.execute(f"CALL dbgen(sf={scale}{parts})")
    for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        (folder / table).mkdir(parents=True, exist_ok=True)
        target = folder / table / f"part-{step:03}.parquet"
        if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
            connection.execute(f"COPY {table} TO '{target}' (COMPRESSION zstd, ROW_GROUP_SIZE 1048576)")
        connection.execute(f"DROP TABLE {table}")
queries = connection.execute("SELECT query FROM tpch_queries() ORDER BY query_nr").fetchall()
(folder / "queries.json").write_text(json.dumps([query.strip().rstrip(";") for (query,) in queries]))
"""


def generate(folder: Path, scale: float) -> list[str]:
    """Writes the tables to `<folder>/<table>/part-*.parquet` unless they are there; returns the queries."""
    queries = folder / "queries.json"
    if not queries.exists():
        python = os.environ.get("LAKEMARK_TPCH_PYTHON")
        if python is None:
            raise RuntimeError("LAKEMARK_TPCH_PYTHON names no Python with DuckDB's generator: run it by make")
        subprocess.run([python, "-c", GENERATE, str(folder), str(scale)], check=True)
    return list(json.loads(queries.read_text(encoding="utf-8")))

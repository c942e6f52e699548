"""Tables in the engines that people already use: Polars, DuckDB, and whatever reads datasets of pyarrow.

Each engine hands the conditions and columns of its query down, and the indexes find the rows. A condition that the
indexes cannot take leaves every row to the engine, which applies all of its conditions itself. So rows are those that
the engine finds without Lakemark.
"""

from lakemark.engines.duckdb_relation import scan_duckdb
from lakemark.engines.polars_source import scan_polars

__all__ = ["scan_duckdb", "scan_polars"]

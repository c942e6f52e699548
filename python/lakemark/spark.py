"""Spark: where the connector's jar is, and a session builder set up to use it.

Example:
    Build a session and read a marked table with it::

        from pyspark.sql import SparkSession
        import lakemark.spark

        spark = lakemark.spark.configure(SparkSession.builder.master("local[2]")).getOrCreate()
        spark.read.format("lakemark").load("flights").filter("origin = 'JFK'").count()
        spark.sql("CREATE INDEX by_origin ON lm.`/data/flights` USING bitmap (origin)")
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lakemark.exceptions import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class SessionBuilder(Protocol):
        """What `configure` needs of `SparkSession.builder`."""

        def config(self, key: str, value: str) -> SessionBuilder:
            """Sets one configuration entry and returns the builder."""


__all__ = ["configure", "jar_path"]

_Builder = TypeVar("_Builder", bound="SessionBuilder")

_JAR = "lakemark-spark.jar"


def jar_path() -> Path:
    """Returns the path of the Spark connector that came with this package.

    Raises:
        NotFoundError: The package was built without the jar.
    """
    path = Path(str(files("lakemark") / "jars" / _JAR))
    if not path.is_file():
        raise NotFoundError(
            f"{path} is missing: this copy of lakemark was built without the Spark connector. "
            "Install a wheel, or build the jar first (`make wheel` does)."
        )
    return path


def configure(
    builder: _Builder,
    *,
    catalog: str = "lm",
    warehouse: str | Path | None = None,
    tables: Mapping[str, str | Path] | None = None,
) -> _Builder:
    """Adds the connector to a session builder: `spark.read.format("lakemark")` works in the session it makes, and SQL.

    Jars that the builder already names are kept.

    Args:
        builder: `SparkSession.builder`, with whatever else you have set on it.
        catalog: The catalog's name in SQL: tables are ``lm.`/data/flights` `` by their paths.
        warehouse: A folder or URL below which folders are tables (`lm.flights`) and namespaces (`lm.air.flights`), and
            where `CREATE TABLE` remembers names.
        tables: Names in the catalog for paths elsewhere.

    Returns:
        The same builder.
    """
    jars = [jar for jar in _options(builder).get("spark.jars", "").split(",") if jar]
    jar = str(jar_path())
    if jar not in jars:
        jars.append(jar)
    builder.config("spark.jars", ",".join(jars))
    prefix = f"spark.sql.catalog.{catalog}"
    builder.config(prefix, "io.lakemark.spark.LakemarkCatalog")
    if warehouse is not None:
        builder.config(f"{prefix}.warehouse", str(warehouse))
    for name, path in (tables or {}).items():
        builder.config(f"{prefix}.tables.{name}", str(path))
    return builder


def _options(builder: object) -> dict[str, str]:
    """What was set on a builder so far; PySpark keeps it in `_options`."""
    options = getattr(builder, "_options", {})
    return {str(key): str(value) for key, value in dict(options).items()}

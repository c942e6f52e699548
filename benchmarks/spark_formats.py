"""The same Parquet files as tables of four formats, and with indexes.

Delta takes the files over (`CONVERT TO DELTA`), and so does Iceberg (`add_files`). Each has a folder of its own with
links to the files, so that all formats read the same bytes.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import lakemark

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Literal

    from pyspark.sql import DataFrame, SparkSession

    from lakemark.reports import IndexKind

FORMATS = ("lakemark", "parquet", "delta", "iceberg")
# Spark's own scans of the files, with indexes.
EXTENSION = "extension"


def known_as(spark: SparkSession, kind: str, name: str, folder: Path, scratch: Path) -> None:
    """Lets queries name the files of a folder as the view `<kind>_<name>`."""
    read = spark.read
    if kind == "lakemark":
        frame = read.format("lakemark").load(str(folder))
    elif kind in ("parquet", EXTENSION):
        frame = read.parquet(str(folder))
    elif kind == "delta":
        place = scratch / f"delta-{name}"
        linked(folder, place)
        spark.sql(f"CONVERT TO DELTA parquet.`{place}`")
        frame = read.format("delta").load(str(place))
    else:
        frame = imported(spark, name, folder, scratch)
    frame.createOrReplaceTempView(f"{kind}_{name}")


def imported(spark: SparkSession, name: str, folder: Path, scratch: Path) -> DataFrame:
    """The files as an Iceberg table."""
    place = scratch / f"for-iceberg-{name}"
    linked(folder, place)
    columns = ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" for field in spark.read.parquet(str(place)).schema
    )
    spark.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.db")
    spark.sql(f"CREATE TABLE iceberg.db.{name} ({columns}) USING iceberg")
    spark.sql(f"CALL iceberg.system.add_files(table => 'db.{name}', source_table => '`parquet`.`{place}`')")
    return spark.table(f"iceberg.db.{name}")


def linked(folder: Path, place: Path) -> None:
    """The same data files in another folder, without their indexes."""
    place.mkdir(parents=True)
    for file in sorted(folder.glob("*.parquet")):
        (place / file.name).hardlink_to(file)


def indexed(folder: Path, columns: Sequence[str], using: IndexKind | Literal["auto"] = "auto") -> None:
    """Indexes on the columns, made anew."""
    shutil.rmtree(folder / "_lakemark", ignore_errors=True)
    table = lakemark.Table(folder)
    for column in columns:
        table.create_index(column, using, build=False)
    table.build(progress=False)

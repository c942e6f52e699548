"""The same questions from PySpark, with the indexes and without."""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING

from demo_engines import in_order
from demo_results import AskedOfSpark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from demo_table import Flights, Question

    Row = tuple[object, ...]


def session() -> SparkSession:
    """A session that knows the format `lakemark`."""
    from pyspark.sql import SparkSession

    from lakemark.spark import configure

    builder = SparkSession.builder.master("local[2]").appName("lakemark demo").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR")
    return configure(builder).getOrCreate()


def ask_all(flights: Flights, rounds: int, tell: Callable[[int, int], None]) -> tuple[AskedOfSpark, ...]:
    """Asks all questions of Spark; `tell` is given how many are done, and how many there are."""
    found = []
    tell(0, len(flights.questions))
    spark = session()
    try:
        for question in flights.questions:
            found.append(_asked(spark, flights, question, rounds))
            tell(len(found), len(flights.questions))
    finally:
        spark.stop()
    return tuple(found)


def _asked(spark: SparkSession, flights: Flights, question: Question, rounds: int) -> AskedOfSpark:
    off, without, _ = _measured(spark, flights, question, "false", rounds)
    on, with_index, frame = _measured(spark, flights, question, "true", rounds)
    if on != off:
        raise SystemExit(f"error: Spark gives other rows with indexes than without for {question.sql}\n{on}\n{off}")
    return AskedOfSpark(question.name, len(on), (without, with_index), row_groups(frame))


def _measured(
    spark: SparkSession, flights: Flights, question: Question, use_index: str, rounds: int
) -> tuple[list[Row], float, DataFrame]:
    """The rows, the median of warm times, and the query."""
    table = spark.read.format("lakemark").option("use_index", use_index).load(str(flights.folder))
    table.createOrReplaceTempView("flights")
    rows = in_order([tuple(row) for row in spark.sql(question.sql).collect()])
    milliseconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        spark.sql(question.sql).collect()
        milliseconds.append((time.perf_counter() - began) * 1e3)
    return rows, statistics.median(milliseconds), spark.sql(question.sql)


def row_groups(frame: DataFrame) -> str:
    """What the scan's description says of row groups; what the indexes answer alone has no scan at all."""
    plan = frame._jdf.queryExecution().toString()  # noqa: SLF001 - PySpark shows physical plans only by printing them
    found = re.search(r"row groups skipped: (\d+) of (\d+)", plan)
    if found:
        return f"{found[1]} of {found[2]} skipped"
    return "all skipped: no scan" if "LocalTableScan" in plan else "-"

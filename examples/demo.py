"""`make demo`: a real table, indexed, then five queries with and without, from the shell and from Spark.

The table is flights.py's: every flight that left New York in 2013. Everything that is printed was measured in this
run: row groups and bytes are the scan operator's own metrics (EXPLAIN ANALYZE), times are wall times of a warm query.
Pages are those of one column: without indexes the ones that zone maps skip, with indexes the ones without a selected
row, which DuckDB counts. Both sides must give the same rows, or the demo fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
from flights import ROWS_PER_PAGE, write_flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CACHE = Path(os.environ.get("LAKEMARK_CACHE", Path.home() / ".cache" / "lakemark"))
INDEXED = ("carrier", "origin", "dest", "tailnum", "month", "dep_delay")
QUERIES = {
    "flights to Honolulu": "SELECT count(*) AS flights FROM flights WHERE dest = 'HNL'",
    "United from JFK, not in summer": (
        "SELECT count(*) AS flights FROM flights WHERE carrier = 'UA' AND origin = 'JFK' AND NOT month IN (6, 7, 8)"
    ),
    "one aircraft's year": (
        "SELECT month, day, origin, dest, distance FROM flights WHERE tailnum = 'N14228' ORDER BY month, day, dest"
    ),
    "over 15 hours late": ("SELECT carrier, flight, dep_delay FROM flights WHERE dep_delay > 900 ORDER BY dep_delay"),
    "delays at rare airports": (
        "SELECT dest, count(*) AS flights, avg(arr_delay) AS delay FROM flights "
        "WHERE dest IN ('ANC', 'LEX', 'SBN', 'HDN', 'EYW') GROUP BY dest ORDER BY dest"
    ),
}
SHELL_REPEATS = 20
SPARK_REPEATS = 5
UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "KB": 1 << 10, "MB": 1 << 20, "B": 1}


@dataclass(frozen=True)
class Measured:
    """What one query gave and cost."""

    rows: list[Any]
    milliseconds: float
    row_groups: str = ""
    pages: str = ""
    bytes_read: int | None = None


def lakemark(*arguments: str) -> str:
    """Runs the shell command and returns what it printed."""
    command = os.environ.get("LAKEMARK_BIN")
    program = [command] if command else [sys.executable, "-m", "lakemark"]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: lakemark {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def sql(folder: Path, use_index: bool, *statements: str) -> str:
    """Runs statements over the table in one shell process."""
    opening = (
        f"SET lakemark.use_index = {str(use_index).lower()}",
        f"CREATE EXTERNAL TABLE flights STORED AS LAKEMARK LOCATION '{folder}'",
    )
    commands = [part for statement in (*opening, *statements) for part in ("-c", statement)]
    return lakemark("sql", "--format", "json", *commands)


def metric(plan: str, name: str) -> int | None:
    """A metric of EXPLAIN ANALYZE, summed over the scans; None if the plan has none of that name."""
    found = re.findall(rf"\b{name}=([\d.]+)(?: ([KM]?B?))?", plan)
    return round(sum(float(number) * UNITS[unit.strip()] for number, unit in found)) if found else None


def skipped(plan: str, name: str) -> tuple[int, int]:
    """How many of how many a pruning metric says are left out."""
    found = re.findall(rf"\b{name}=([\d.]+)(?: K)? total → ([\d.]+)", plan)
    total = round(sum(float(part) for part, _ in found))
    return total - round(sum(float(part) for _, part in found)), total


def ask_shell(folder: Path, query: str, use_index: bool) -> Measured:
    """Runs a query in the shell: the rows, the scan's metrics, and its time in a process that repeats it."""
    rows = json.loads(sql(folder, use_index, query))
    plan = "\n".join(line["plan"] for line in json.loads(sql(folder, use_index, f"EXPLAIN ANALYZE {query}")))
    once, often = (timed(folder, use_index, query, times) for times in (1, 1 + SHELL_REPEATS))
    milliseconds = max(often - once, 0.0) / SHELL_REPEATS * 1e3
    groups, pages_skipped = scan_metrics(folder, query, plan, use_index)
    return Measured(rows, milliseconds, groups, pages_skipped, metric(plan, "bytes_scanned") or 0)


def timed(folder: Path, use_index: bool, query: str, times: int) -> float:
    """Seconds of a process that runs the query so many times; the best of two."""
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        sql(folder, use_index, *[query] * times)
        best = min(best, time.perf_counter() - start)
    return best


def scan_metrics(folder: Path, query: str, plan: str, use_index: bool) -> tuple[str, str]:
    """Row groups and pages that the scan skipped, as `n of m`."""
    if not use_index:
        groups_skipped, groups_total = skipped(plan, "row_groups_pruned_statistics")
        pages_skipped, pages_seen = skipped(plan, "page_index_pages_pruned")
        pages_total, _ = pages(folder, "true")
        # Pages of row groups that are skipped as a whole are not looked at one by one.
        pages_skipped += pages_total - pages_seen
        return f"{groups_skipped} of {groups_total}", f"{pages_skipped} of {pages_total}"
    total, chosen = pages(folder, re.split(r" WHERE | GROUP BY | ORDER BY ", query)[1])
    groups_total = metric(plan, "row_groups_total")
    if groups_total is None:
        # The count came from the index alone: there is no scan in the plan.
        groups = sum(pq.ParquetFile(path).metadata.num_row_groups for path in folder.glob("*.parquet"))
        return f"{groups} of {groups}", f"{total} of {total}"
    return f"{metric(plan, 'row_groups_pruned_index')} of {groups_total}", f"{total - chosen} of {total}"


def pages(folder: Path, predicate: str) -> tuple[int, int]:
    """Pages of one column in the whole table, and those that hold a row of the predicate."""
    page = f"filename || '/' || file_row_number // {ROWS_PER_PAGE}"
    source = f"read_parquet('{folder}/*.parquet', filename = true, file_row_number = true)"
    sql_text = f"SELECT count(DISTINCT {page}), count(DISTINCT CASE WHEN {predicate} THEN {page} END) FROM {source}"
    found = duckdb.connect().execute(sql_text).fetchone()
    assert found is not None
    return found[0], found[1]


def ask_spark(spark: SparkSession, folder: Path, query: str, use_index: bool) -> Measured:
    """Runs a query in Spark: the rows, what the scan says of itself, and its median time when warm."""
    frame = spark.read.format("lakemark").option("use_index", str(use_index).lower()).load(str(folder))
    frame.createOrReplaceTempView("flights")
    rows = [row.asDict() for row in spark.sql(query).collect()]
    seconds = []
    for _ in range(SPARK_REPEATS):
        start = time.perf_counter()
        spark.sql(query).collect()
        seconds.append(time.perf_counter() - start)
    return Measured(rows, sorted(seconds)[SPARK_REPEATS // 2] * 1e3, spark_row_groups(spark.sql(query)))


def spark_row_groups(frame: DataFrame) -> str:
    """What the scan's description says of row groups; a count that the indexes answer alone has no scan at all."""
    plan = frame._jdf.queryExecution().toString()  # noqa: SLF001 - PySpark shows physical plans only by printing them
    found = re.search(r"row groups skipped: (\d+) of (\d+)", plan)
    if found:
        return f"{found[1]} of {found[2]}"
    return "all: no scan" if "LocalTableScan" in plan else "-"


def compare(title: str, answers: dict[str, tuple[Measured, Measured]], *, scans: bool) -> None:
    """Prints one table: for each query a line without indexes and a line with them."""
    head = ["", "use_index", "rows", "row groups skipped", "pages skipped", "bytes read", "ms", "faster"]
    lines = [head]
    for name, (off, on) in answers.items():
        if off.rows != on.rows:
            raise SystemExit(f"error: {name}: other rows with indexes than without:\n{on.rows}\n{off.rows}")
        for use_index, measured in (("off", off), ("on", on)):
            size = "-" if measured.bytes_read is None else f"{measured.bytes_read:,}"
            faster = f"{off.milliseconds / max(on.milliseconds, 0.001):.1f}x" if use_index == "on" else ""
            label = name if use_index == "off" else ""
            line = [label, use_index, f"{len(measured.rows):,}", measured.row_groups, measured.pages, size]
            lines.append([*line, f"{measured.milliseconds:.1f}", faster])
    if not scans:
        lines = [line[:4] + line[6:] for line in lines]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    print(f"\n{title}")
    for number, line in enumerate(lines):
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        print("  " + "  ".join(cells))
        if number == 0 or line[1] == "on":
            print("  " + "-" * (sum(widths) + 2 * (len(widths) - 1)))


def create_indexes(folder: Path) -> None:
    """Declares the indexes and builds them, with the shell's verbs."""
    shutil.rmtree(folder / "_lakemark", ignore_errors=True)
    start = time.perf_counter()
    for column in INDEXED:
        lakemark("index", "create", str(folder), "--on", column, "--using", "bitmap", "--no-build")
    lakemark("index", "build", str(folder), "--quiet")
    data = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    index_bytes = sum(path.stat().st_size for path in (folder / "_lakemark").rglob("*") if path.is_file())
    print(f"indexed {', '.join(INDEXED)} in {time.perf_counter() - start:.1f} s: {index_bytes:,} bytes beside {data:,}")


def run_shell(folder: Path) -> None:
    """The five queries from the shell."""
    answers = {
        name: (ask_shell(folder, query, False), ask_shell(folder, query, True)) for name, query in QUERIES.items()
    }
    compare("From the shell (lakemark sql)", answers, scans=True)


def run_spark(folder: Path) -> None:
    """The five queries from PySpark."""
    from pyspark.sql import SparkSession

    from lakemark.spark import configure

    builder = SparkSession.builder.master("local[2]").appName("lakemark demo").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR")
    spark = configure(builder).getOrCreate()
    try:
        answers = {
            name: (ask_spark(spark, folder, query, False), ask_spark(spark, folder, query, True))
            for name, query in QUERIES.items()
        }
    finally:
        spark.stop()
    compare("From PySpark (spark.read.format('lakemark'))", answers, scans=False)


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=CACHE / "demo" / "flights", help="where the table is written")
    parser.add_argument("--no-spark", action="store_true", help="only the shell")
    arguments = parser.parse_args()
    folder = write_flights(arguments.folder)
    print(f"flights that left New York in 2013: {len(list(folder.glob('*.parquet')))} Parquet files in {folder}")
    create_indexes(folder)
    run_shell(folder)
    if not arguments.no_spark:
        run_spark(folder)
    print("\nThe rows were the same with and without indexes. Delete _lakemark/ at any time: only the times change.")


if __name__ == "__main__":
    main()

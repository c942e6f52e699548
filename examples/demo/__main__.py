"""`make demo`: a real table, indexed, asked beside other engines, and changed while a second process counts its rows.

Everything that is printed and drawn was measured in this run. All engines must give the same rows, and the second
process must see whole changes, or the demo fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import demo_engines
import demo_large
import demo_live
import demo_page
import demo_report
import demo_small
import lakemark
from demo_results import Machine, Results
from demo_table import KEY
from lakemark._progress import ProgressBar

if TYPE_CHECKING:
    from demo_results import AskedOfSpark
    from demo_table import Flights

CACHE = Path(os.environ.get("LAKEMARK_CACHE", Path.home() / ".cache" / "lakemark")) / "demo"
SPARK_ROUNDS = 2
FOLDER = CACHE / "flights"


def prepared(arguments: argparse.Namespace) -> Flights:
    """A table to work on, which is a copy, as the demo changes it: the large one, or else the small one."""
    if arguments.folder == FOLDER:
        shutil.rmtree(FOLDER, ignore_errors=True)
    elif arguments.folder.exists() and any(arguments.folder.iterdir()):
        raise SystemExit(f"error: {arguments.folder} is not empty; the demo writes its table into a new folder")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    written, module = CACHE / "small", demo_small
    if not arguments.small:
        try:
            published = demo_large.fetch(CACHE)
        except demo_large.NotToBeHadError as why:
            print(f"the 3,000,000 flights are not to be had here: {why}; going on with the small table")
        else:
            print("3,000,000 flights of the package vega-datasets; `--small` takes 336,776")
            demo_large.write_flights(published, CACHE / "large")
            written, module = CACHE / "large", demo_large
    if module is demo_small:
        demo_small.write_flights(written)
    for path in written.glob("*.parquet"):
        shutil.copy2(path, arguments.folder)
    return module.table(arguments.folder)


def index(flights: Flights) -> tuple[lakemark.Table, float]:
    """Declares the indexes and builds them; gives the seconds that this took."""
    table = lakemark.Table(flights.folder)
    began = time.perf_counter()
    for column in flights.indexed:
        table.create_index(column, using="bitmap", build=False)
    table.build()
    return table, time.perf_counter() - began


def ask_spark(flights: Flights) -> tuple[AskedOfSpark, ...]:
    """The questions from PySpark."""
    import demo_spark

    with ProgressBar("Spark", unit="queries") as tell:
        return demo_spark.ask_all(flights, SPARK_ROUNDS, tell)


def run(arguments: argparse.Namespace) -> Results:
    """Does all of it."""
    flights = prepared(arguments)
    rows, data_bytes = flights.rows, sum(path.stat().st_size for path in flights.files)
    print(f"{rows:,} {flights.title}: {len(flights.files)} Parquet files in {flights.folder}")
    table, build_seconds = index(flights)
    index_bytes = sum(entry.bytes for entry in table.indexes)
    with ProgressBar("queries", unit="queries") as tell:
        asked = demo_engines.ask_all(flights, arguments.rounds, tell)
    spark = () if arguments.no_spark else ask_spark(flights)
    table.declare_key(KEY)
    with ProgressBar("changes", unit="changes") as tell:
        live = demo_live.change(flights, table, arguments.changes, tell)
    machine = Machine(os.cpu_count() or 1, os.environ.get("LAKEMARK_PROFILE", "dev"), demo_engines.versions())
    return Results(
        flights.title, rows, data_bytes, index_bytes, flights.indexed, build_seconds, machine, asked, live, spark
    )


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="a new folder for the table")
    parser.add_argument("--page", type=Path, default=CACHE / "demo.html", help="the page that is written at the end")
    parser.add_argument("--small", action="store_true", help="336,776 flights, which need no npm")
    parser.add_argument("--no-spark", action="store_true", help="without Spark")
    parser.add_argument("--rounds", type=int, default=5, help="how often each engine is asked")
    parser.add_argument("--changes", type=int, default=40, help="how many changes are made while somebody reads")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.changes < 1:
        parser.error("--rounds and --changes are at least 1")
    results = run(arguments)
    print(f"\n{demo_report.printed(results)}")
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text(demo_page.page(results), encoding="utf-8")
    print(f"\nDrawn: {arguments.page}")


if __name__ == "__main__":
    main()

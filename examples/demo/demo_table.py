"""The tables of the demo: what is in them, which indexes they get, what is asked of them, and what changes.

Both are real flights in several Parquet files with row groups and small pages: the folder that a nightly job leaves.
The large one is read from a package of npm, the small one from a package of PyPI.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

#: The column that tells the flights apart: their number in the order in which they were published.
KEY = "id"


@dataclass(frozen=True)
class Question:
    """A query over the table `flights`.

    Attributes:
        name: What it is about, for people.
        select: Its columns.
        where: Its condition; empty without one.
        then: What comes behind the condition.
    """

    name: str
    select: str
    where: str
    then: str = ""

    @property
    def sql(self) -> str:
        """The whole statement."""
        condition = f"WHERE {self.where}" if self.where else ""
        return " ".join(part for part in (f"SELECT {self.select} FROM flights", condition, self.then) if part)


@dataclass(frozen=True)
class Flights:
    """A table of flights.

    Attributes:
        title: What is in it, for people.
        folder: Where its files are.
        indexed: The columns that get indexes.
        questions: What is asked.
        watched: The condition whose rows a second process counts while the table changes.
        arrival: The values of a new flight that this condition is true of, but for its key.
    """

    title: str
    folder: Path
    indexed: tuple[str, ...]
    questions: tuple[Question, ...]
    watched: str
    arrival: dict[str, object]

    @property
    def files(self) -> list[Path]:
        """Its data files, in the order of their names."""
        return sorted(self.folder.glob("*.parquet"))

    @property
    def rows(self) -> int:
        """How many rows its files have."""
        return sum(pq.read_metadata(path).num_rows for path in self.files)


def write_file(flights: pa.Table, path: Path, rows_per_row_group: int, rows_per_page: int) -> None:
    """Writes one file of a table, as a whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    pq.write_table(
        flights,
        unfinished,
        compression="zstd",
        row_group_size=rows_per_row_group,
        max_rows_per_page=rows_per_page,
        write_page_index=True,
        # A dictionary of values that are all different would be read for each page.
        use_dictionary=[name for name in flights.column_names if name != KEY],
    )
    unfinished.rename(path)

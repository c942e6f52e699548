"""What a run of the demo found out: the table in the terminal and the page are made of nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

#: The engine whose numbers are compared with all others.
OURS = "Lakemark"


@dataclass(frozen=True)
class Cost:
    """What a query costs an engine, as the median over its rounds.

    Attributes:
        milliseconds: Wall time.
        bytes_read: Bytes that the process read from files, out of the page cache or from the disk.
    """

    milliseconds: float
    bytes_read: int


@dataclass(frozen=True)
class Asked:
    """A query that was asked of all engines, which gave the same rows.

    Attributes:
        name: What it is about.
        sql: Its text.
        rows: How many rows it gives.
        costs: What it cost, by engine.
        pages: Pages of a column of the whole table.
        pages_read: The numbers of those that Lakemark reads.
    """

    name: str
    sql: str
    rows: int
    costs: dict[str, Cost]
    pages: int
    pages_read: tuple[int, ...]

    @property
    def bytes_skipped(self) -> float:
        """The share of the bytes that the same engine reads without indexes."""
        without = self.costs[f"{OURS}, index off"].bytes_read
        return max(0.0, 1 - self.costs[OURS].bytes_read / without) if without else 0.0


@dataclass(frozen=True)
class AskedOfSpark:
    """A query that was asked of Spark, with the indexes and without.

    Attributes:
        name: What it is about.
        rows: How many rows it gives.
        milliseconds: Median wall times without and with the indexes.
        row_groups: What the scan says of row groups.
    """

    name: str
    rows: int
    milliseconds: tuple[float, float]
    row_groups: str


@dataclass(frozen=True)
class Count:
    """A number of rows at some time.

    Attributes:
        seconds: Since the first change.
        rows: How many rows there were.
    """

    seconds: float
    rows: int


@dataclass(frozen=True)
class Live:
    """A table that changes while a second process counts its rows.

    Attributes:
        watched: The condition whose rows are counted.
        step: How many rows each change adds.
        written: The number of rows after each change, when its call returned.
        seen: What the other process counted.
        others_before: What DuckDB counts in the data files while the changes are buffered.
        others_after: What it counts once they are migrated and published.
    """

    watched: str
    step: int
    written: tuple[Count, ...]
    seen: tuple[Count, ...]
    others_before: int
    others_after: int


@dataclass(frozen=True)
class Machine:
    """What it ran on.

    Attributes:
        cores: Cores of the machine.
        profile: How Lakemark was compiled: `dev` or `release`.
        versions: Versions by engine.
    """

    cores: int
    profile: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Results:
    """All of it.

    Attributes:
        title: What is in the table.
        rows: Its rows.
        data_bytes: Bytes of its data files.
        index_bytes: Bytes of its indexes.
        indexed: The columns that have one.
        build_seconds: How long all of them took to build.
        machine: What it ran on.
        asked: The queries.
        live: The changes.
        spark: The queries of Spark; none without it.
    """

    title: str
    rows: int
    data_bytes: int
    index_bytes: int
    indexed: tuple[str, ...]
    build_seconds: float
    machine: Machine
    asked: tuple[Asked, ...]
    live: Live
    spark: tuple[AskedOfSpark, ...] = field(default=())

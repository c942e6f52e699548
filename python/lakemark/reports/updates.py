"""What changes were, how buffered ones stand, and what migrating and publishing them did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakemark import _pictures
from lakemark._pictures import GREEN, GREY, ORANGE, Part
from lakemark.reports.described import Described

__all__ = ["MigrateReport", "PublishReport", "RunInfo", "UpdatesInfo", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """What a change was.

    Attributes:
        sequence: Its sequence number: changes are ordered by it, and every call has its own.
        rows: Its number of rows.
    """

    sequence: int
    rows: int


@dataclass(frozen=True, slots=True)
class UpdatesInfo(Described):
    """How the buffered updates of a table stand. `str()` gives it as text.

    Attributes:
        key: The columns of the key.
        sequence: The sequence number of the last change.
        buffer_bytes: Bytes of the buffer, which is the log on the disk.
        buffer_limit: Bytes at which it becomes a run: as many as give a run of S pages or more.
        buffer_keys: Keys that changes in the buffer are about.
        rows_buffered: Buffered rows, which scans add to those of the data files.
        rows_deleted: Rows of the data files that scans leave out, those of deletion vectors included.
        base_rows: Rows of the data files, as far as the indexes know them.
        cache_bytes: Bytes of the runs.
        cache_limit: Bytes that runs may take before changes are refused.
        migration_threshold: The share from which on writers begin a migration, if the table has one.
        cache_share: `cache_bytes / cache_limit`.
        runs: The runs, oldest first.
        runs_limit: How many runs there may be before the oldest are merged.
        writes_per_update: How often a byte of an update was written to runs on average.
        writes_bound: The bound of that, 2 - 0.25 alpha².
        rows_written: Changed rows that reached a run.
        log_bytes: Bytes written to logs so far.
        flushed_bytes: Bytes written as the buffer was flushed.
        merged_bytes: Bytes written as runs were merged.
    """

    key: tuple[str, ...]
    sequence: int
    buffer_bytes: int
    buffer_limit: int
    buffer_keys: int
    rows_buffered: int
    rows_deleted: int
    base_rows: int
    cache_bytes: int
    cache_limit: int
    migration_threshold: float | None
    cache_share: float
    runs: list[RunInfo]
    runs_limit: int
    writes_per_update: float
    writes_bound: float
    rows_written: int
    log_bytes: int
    flushed_bytes: int
    merged_bytes: int

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "key": tuple(said["key"]), "runs": [RunInfo(**run) for run in said["runs"]]}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values, the same as in the shell's `info --format json`."""
        return {**Described.to_dict(self), "key": list(self.key)}

    def _drawn(self) -> str:
        writes = round(1000 * self.writes_per_update), round(1000 * self.writes_bound)
        return (
            _fill("buffer", self.buffer_bytes, self.buffer_limit)
            + _fill("cache", self.cache_bytes, self.cache_limit)
            + _pictures.bar(
                "writes per update",
                [
                    Part("so far", writes[0], GREEN, f"{self.writes_per_update:.2f}"),
                    Part("of at most", max(0, writes[1] - writes[0]), GREY, f"{self.writes_bound:.2f}"),
                ],
            )
            + _pictures.bar("runs", [Part(f"pass {run.passes}", run.rows, _run_colour(run)) for run in self.runs])
        )


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A sorted file of buffered updates.

    Attributes:
        passes: How often its rows were written, 1 or 2.
        rows: Its rows.
        rows_migrated: Those of them that are in the data files already.
        bytes: Bytes of the file.
    """

    passes: int
    rows: int
    rows_migrated: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MigrateReport(Described):
    """What a migration did.

    Attributes:
        rows: Buffered rows that are in the data files now.
        rows_replaced: Rows of data files that these rows replaced, and rows that were deleted.
        files_replaced: Data files that were replaced.
        files_written: Data files that were written.
        bytes_written: Their bytes.
        delta_version: The version of the Delta table that has them.
        seconds: Wall time.
    """

    rows: int
    rows_replaced: int
    files_replaced: int
    files_written: int
    bytes_written: int
    delta_version: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class PublishReport(Described):
    """What a publication did.

    Attributes:
        files_published: Data files of the store that are files of the folder now.
        originals_moved: Files of the folder that they replace, which are in the store now.
        bytes_published: Bytes of the published files.
        seconds: Wall time.
    """

    files_published: int
    originals_moved: int
    bytes_published: int
    seconds: float


def _fill(title: str, used: int, limit: int) -> str:
    free = max(0, limit - used)
    size = _pictures.human_bytes
    return _pictures.bar(title, [Part("used", used, ORANGE, size(used)), Part("free", free, GREY, size(free))])


def _run_colour(run: RunInfo) -> str:
    return GREEN if run.passes > 1 else ORANGE

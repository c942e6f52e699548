"""A table: at a glance, at one time, and its versions."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal

from lakemark.reports.described import Described
from lakemark.reports.index import Index
from lakemark.reports.updates import UpdatesInfo

__all__ = ["ColumnInfo", "Snapshot", "TableInfo", "Version"]


@dataclass(frozen=True, slots=True)
class TableInfo(Described):
    """A table at a glance. `str()` gives it as text.

    Attributes:
        location: Where the data is.
        format: `parquet` or `delta`.
        store: Where the indexes are; none for a glob or a single file opened without a store.
        version: The version that is read, if one was named: how updates stand is known of the newest state alone.
        delta_version: Version of the Delta table, if it is one.
        manifest: Number of the manifest, if there is one.
        files: Number of data files.
        bytes: Bytes of the data files.
        rows: Rows that the table shows.
        columns: The columns in their order.
        partition_columns: Names of those whose values are constant in a file.
        index_bytes: Bytes of all index files.
        indexes: The indexes.
        updates: How buffered updates stand; none if the table takes none.
    """

    location: str
    format: Literal["parquet", "delta"]
    store: str | None
    version: int | None
    delta_version: int | None
    manifest: int | None
    files: int
    bytes: int
    rows: int
    columns: list[ColumnInfo]
    partition_columns: list[str]
    index_bytes: int
    indexes: list[Index]
    updates: UpdatesInfo | None

    @classmethod
    def of(cls, report: tuple[str, str, str], updates: tuple[str, str, str] | None) -> TableInfo:
        """Makes a report with that on updates, each from its JSON forms and its text."""
        known = None if updates is None else UpdatesInfo.from_json(*updates)
        return replace(cls.from_json(*report), updates=known)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        columns = [ColumnInfo(**column) for column in said["columns"]]
        return {**said, "columns": columns, "indexes": [Index.from_dict(index) for index in said["indexes"]]}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values, the same as the shell's `info --format json`."""
        values = Described.to_dict(self)
        values["updates"] = None if self.updates is None else self.updates.to_dict()
        for index in values["indexes"]:
            index["columns"], index["options"] = (
                list(index["columns"]),
                [list(each) for each in index["options"].items()],
            )
        return values

    def _drawn(self) -> str:
        return "" if self.updates is None else self.updates._drawn()  # noqa: SLF001 - both are reports


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a table.

    Attributes:
        name: Its name.
        data_type: Its Arrow type.
        nullable: Whether a value may be missing.
    """

    name: str
    data_type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a table at one time.

    Attributes:
        manifest: Number of the manifest that lists the indexes; none before the first index.
        delta_version: Version of the Delta table; none for plain Parquet.
        files: Data files, relative to the table.
        bytes: Bytes of the data files.
        rows: Rows of the data files, deleted ones included, where the indexes know them for every file.
        rows_deleted: Rows of the data files that deletion vectors or buffered updates delete or replace.
        rows_buffered: Buffered rows, which are in no data file yet.
        key: Columns of the key; none if the table takes no updates.
        sequence: Sequence number of the last change; none if the table takes no updates.
        partition_columns: Columns whose values are constant per file.
        indexes: The indexes and how much of this state they cover.
    """

    manifest: int | None
    delta_version: int | None
    files: list[str]
    bytes: int
    rows: int | None
    rows_deleted: int
    rows_buffered: int
    key: tuple[str, ...] | None
    sequence: int | None
    partition_columns: list[str]
    indexes: list[Index]

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Makes a snapshot from its JSON form."""
        values = json.loads(text)
        values["indexes"] = [Index.from_dict(index) for index in values["indexes"]]
        values["key"] = values["key"] and tuple(values["key"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, as `Table.history` lists them.

    Attributes:
        version: Its number, for `Table(path, version=…)`.
        time: When it was made, if that was written down.
        operation: What made it.
        files_added: Data files that it added; of a run of changes, one.
        files_removed: Data files, or runs, that it took away.
        rows: Rows in what it added, where that is known: of Delta's files, or changes of a run.
    """

    version: int
    time: datetime | None
    operation: str
    files_added: int
    files_removed: int
    rows: int | None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Version:
        """Makes one from its JSON form."""
        rest = dict(values)
        time = rest.pop("time_ms")
        return cls(time=None if time is None else datetime.fromtimestamp(time / 1000, tz=timezone.utc), **rest)

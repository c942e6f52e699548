"""What calls report about what they found and did: plain dataclasses that also draw themselves in notebooks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Any

from lakemark import _pictures
from lakemark._pictures import GREEN, GREY, ORANGE, Part

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "BuildReport",
    "ColumnInfo",
    "CompactReport",
    "ExplainReport",
    "Finding",
    "Index",
    "IndexVerdict",
    "Leaf",
    "MigrateReport",
    "PublishReport",
    "RunInfo",
    "Snapshot",
    "TableInfo",
    "UpdatesInfo",
    "VacuumReport",
    "VerifyReport",
    "Version",
    "Waste",
    "Written",
]


@dataclass(frozen=True, slots=True)
class Description:
    """What a report says to people: text and the tables of notebooks are drawn from it.

    Attributes:
        title: What was done; empty if nothing was to be done but to look.
        facts: Values for people, each with its name.
        notes: What else is worth a line.
        text: All of it as text.
    """

    title: str
    facts: list[tuple[str, str]]
    notes: list[str]
    text: str

    @classmethod
    def from_json(cls, values: str, text: str) -> Description:
        """Makes one from its JSON form and its text."""
        said = json.loads(values)
        return cls(said["title"], [(name, value) for name, value in said["facts"]], said["notes"], text)


class _Described:
    """A report that comes with its description."""

    __slots__ = ()
    _description: Description

    @classmethod
    def from_json(cls, values: str, description: str, text: str) -> Self:
        """Makes a report from the JSON forms of its values and its description, and its text."""
        fields = {**cls._read(json.loads(values)), "_description": Description.from_json(description, text)}
        return cls(**fields)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        """The attributes, of what the JSON form has."""
        return said

    def _bars(self) -> str:
        """What a notebook draws below the facts."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values, the same as the shell's `--format json`."""
        values: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        del values["_description"]
        return values

    def __str__(self) -> str:
        return self._description.text

    def _repr_html_(self) -> str:
        said = self._description
        title = f"<b>{escape(said.title)}</b>" if said.title else ""
        facts = _pictures.definitions(said.facts) if said.facts else ""
        return title + facts + self._bars() + (_pictures.lines(said.notes) if said.notes else "")


@dataclass(frozen=True, slots=True)
class Index:
    """An index and how much of the table it covers.

    Attributes:
        name: Its name, unique in the table.
        kind: Its kind: `bitmap`, `key`, `bloom_tree` or `summary`.
        encoding: Which bitmaps the kind keeps: `equality`, `binary`, `range`, `interval`, `interval-equality`,
            `range-equality` or `binned`; `packed` for the kind `key`.
        column: The column that it is on, several with commas.
        columns: Its columns one by one.
        data_type: The column's Arrow type.
        chosen_by: Who chose the encoding: `auto` or `user`.
        reason: Why `auto` chose it.
        predicted_bytes: Bytes that were predicted from a sample when it was created, for the rows that it covers now.
        options: Options that it was created with.
        files_covered: Data files that it covers now.
        files_total: Data files that the table has now.
        coverage: `files_covered / files_total`.
        segments: Sidecar files that it is made of.
        bytes: Bytes of these files.
        rows: Rows that it covers.
    """

    name: str
    kind: str
    encoding: str
    column: str
    columns: tuple[str, ...]
    data_type: str
    chosen_by: str
    reason: str | None
    predicted_bytes: int | None
    options: dict[str, str]
    files_covered: int
    files_total: int
    coverage: float
    segments: int
    bytes: int
    rows: int

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Index:
        """Makes an index from its JSON form."""
        return cls(**{**values, "columns": tuple(values["columns"]), "options": dict(values["options"])})


@dataclass(frozen=True, slots=True)
class CompactReport(_Described):
    """What merging segments did.

    Attributes:
        indexes: Names of the indexes of which segments were merged.
        segments_merged: Segments that were merged; they stay until a `vacuum`.
        segments_written: Segments that took their place.
        bytes_written: Their bytes.
        seconds: Wall time.
    """

    indexes: list[str]
    segments_merged: int
    segments_written: int
    bytes_written: int
    seconds: float
    _description: Description = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class BuildReport(_Described):
    """What a build did.

    Attributes:
        indexes: Names of the indexes that grew.
        files: Data files that were read.
        rows: Rows that were read.
        segments: Sidecar files that were written.
        bytes_written: Their bytes.
        spilled: Parts that went to disk because of the memory limit.
        skipped: Data files left out because they changed while they were read; the next build takes them.
        adopted: Touched data files whose hashes proved that nothing changed, so that they keep their indexes.
        repaired: Sidecar files that were missing or damaged: what they covered is indexed again.
        declined: Data files whose column an index leaves out for good, each with the reason.
        false_statistics: Data files of which the build has seen that the footer's statistics exclude values
            that are there. Nothing goes by these statistics any more; other readers may.
        seconds: Wall time.
    """

    indexes: list[str]
    files: int
    rows: int
    segments: int
    bytes_written: int
    spilled: int
    skipped: list[str]
    adopted: int
    repaired: int
    declined: list[Finding]
    false_statistics: list[Finding]
    seconds: float
    _description: Description = field(repr=False, compare=False, kw_only=True)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, **{name: _findings(said[name]) for name in ("declined", "false_statistics")}}


@dataclass(frozen=True, slots=True)
class Finding:
    """A file and what is wrong with it.

    Attributes:
        path: The segment or data file.
        problem: What is wrong.
    """

    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class IndexVerdict:
    """What a verification found in one index.

    Attributes:
        name: The index.
        files_ok: Data files whose indexes are exactly what the data says.
        damaged: Segments that are missing, unreadable or wrong.
        stale: Data files that changed or vanished since they were indexed; `build` renews them.
    """

    name: str
    files_ok: int
    damaged: list[Finding]
    stale: list[Finding]


@dataclass(frozen=True, slots=True)
class VerifyReport(_Described):
    """What a verification found.

    Attributes:
        indexes: One verdict per index.
        false_statistics: Data files of which a build has seen that the footer's statistics exclude values
            that are there.
    """

    indexes: list[IndexVerdict]
    false_statistics: list[Finding]
    _description: Description = field(repr=False, compare=False, kw_only=True)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        verdicts = [
            IndexVerdict(
                name=verdict["name"],
                files_ok=verdict["files_ok"],
                damaged=_findings(verdict["damaged"]),
                stale=_findings(verdict["stale"]),
            )
            for verdict in said["indexes"]
        ]
        return {"indexes": verdicts, "false_statistics": _findings(said["false_statistics"])}

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged. Stale index files are no damage: they are not used."""
        return not any(verdict.damaged for verdict in self.indexes)

    def __bool__(self) -> bool:
        return self.ok

    def _bars(self) -> str:
        return "".join(
            _pictures.bar(
                verdict.name,
                [
                    Part("files verified", verdict.files_ok, GREEN),
                    Part("damaged", len(verdict.damaged), ORANGE),
                    Part("stale", len(verdict.stale), GREY),
                ],
            )
            for verdict in self.indexes
        )


@dataclass(frozen=True, slots=True)
class Waste:
    """A file of the store that nobody needs any more.

    Attributes:
        path: The file, relative to the store.
        bytes: Its length.
    """

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class VacuumReport(_Described):
    """What a vacuum removed, or would remove.

    Attributes:
        dry_run: Whether nothing was removed.
        removed: Manifests, then segments and unfinished files.
        bytes: Bytes of these files.
        manifests_kept: Manifests that stay.
        segments_kept: Segments that stay.
        seconds: Wall time.
    """

    dry_run: bool
    removed: list[Waste]
    bytes: int
    manifests_kept: int
    segments_kept: int
    seconds: float
    _description: Description = field(repr=False, compare=False, kw_only=True)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "removed": [Waste(**waste) for waste in said["removed"]]}


@dataclass(frozen=True, slots=True)
class Leaf:
    """How one condition of a predicate was answered.

    Attributes:
        text: The condition.
        column: The column that it is about, if it is about one.
        index: The index that answered it, at least for some files; `partition` for a partition column.
        encoding: The encoding of that index.
        choice: Why `auto` chose that encoding, if it did.
        reason: Why no index answered it, at least for some files: a code such as `no_index`.
        rows: Rows for which it may be true, in the files where an index answered.
    """

    text: str
    column: str | None
    index: str | None
    encoding: str | None
    choice: str | None
    reason: str | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """What the indexes say about a predicate, and what is left to read. `str()` gives it as text.

    Attributes:
        leaves: The predicate's conditions, in the order of the text.
        coverage: Share of the data files for which the indexes narrowed anything or had the whole answer.
        files_total: Data files of the table.
        files_pruned: Data files that need not be opened.
        files_scanned: Data files that are scanned as if there were no indexes.
        row_groups_total: Row groups of the files that are not unknown.
        row_groups_pruned: Row groups among them that need not be read.
        rows_total: Rows of the files that are not unknown.
        rows_exact: Exact rows: they are in the answer without a test.
        rows_rechecked: Rows to be rechecked: they must be read and tested.
        index_reads: Reads of the store.
        index_bytes_read: Bytes of these reads.
        seconds: Wall time.
    """

    leaves: list[Leaf]
    coverage: float
    files_total: int
    files_pruned: int
    files_scanned: int
    row_groups_total: int
    row_groups_pruned: int
    rows_total: int
    rows_exact: int
    rows_rechecked: int
    index_reads: int
    index_bytes_read: int
    seconds: float
    _text: str

    @classmethod
    def from_json(cls, text: str, readable: str) -> ExplainReport:
        """Makes a report from its JSON form and its text."""
        values = json.loads(text)
        leaves = [Leaf(**leaf) for leaf in values.pop("leaves")]
        return cls(leaves=leaves, _text=readable, **values)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values, the same as the shell's `--format json`."""
        values = asdict(self)
        del values["_text"]
        return values

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        rows = [
            [
                leaf.text,
                leaf.index or "",
                leaf.encoding or "",
                leaf.reason or "",
                "" if leaf.rows is None else f"{leaf.rows:,}",
            ]
            for leaf in self.leaves
        ]
        columns = [("condition", ""), ("index", ""), ("encoding", ""), ("not answered because", ""), ("rows", "")]
        known_files = self.files_total - self.files_pruned - self.files_scanned
        neither = self.rows_total - self.rows_exact - self.rows_rechecked
        return (
            _pictures.html_table(columns, rows, more=False)
            + _pictures.bar(
                "files",
                [
                    Part("skipped", self.files_pruned, GREY),
                    Part("read in part", known_files, GREEN),
                    Part("scanned", self.files_scanned, ORANGE),
                ],
            )
            + _pictures.bar(
                "row groups",
                [
                    Part("skipped", self.row_groups_pruned, GREY),
                    Part("read", self.row_groups_total - self.row_groups_pruned, GREEN),
                ],
            )
            + _pictures.bar(
                "rows",
                [
                    Part("skipped", neither, GREY),
                    Part("exact", self.rows_exact, GREEN),
                    Part("to recheck", self.rows_rechecked, ORANGE),
                ],
            )
            + f"<p>{self.index_reads:,} reads of the store, {_pictures.human_bytes(self.index_bytes_read)}, "
            f"{self.seconds * 1000:.1f} ms</p>"
        )


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
class TableInfo(_Described):
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
    format: str
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
    _description: Description = field(repr=False, compare=False, kw_only=True)

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
        values = _Described.to_dict(self)
        values["updates"] = None if self.updates is None else self.updates.to_dict()
        for index in values["indexes"]:
            index["columns"], index["options"] = (
                list(index["columns"]),
                [list(each) for each in index["options"].items()],
            )
        return values

    def _bars(self) -> str:
        return "" if self.updates is None else self.updates._bars()  # noqa: SLF001 - one module


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
class Written:
    """What a change was.

    Attributes:
        sequence: Its sequence number: changes are ordered by it, and every call has its own.
        rows: Its number of rows.
    """

    sequence: int
    rows: int


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


@dataclass(frozen=True, slots=True)
class PublishReport(_Described):
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
    _description: Description = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class MigrateReport(_Described):
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
    _description: Description = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class UpdatesInfo(_Described):
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
        cache_share: `cache_bytes / cache_limit`.
        migration_threshold: The share from which on writers begin a migration, if the table has one.
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
    cache_share: float
    migration_threshold: float | None
    runs: list[RunInfo]
    runs_limit: int
    writes_per_update: float
    writes_bound: float
    rows_written: int
    log_bytes: int
    flushed_bytes: int
    merged_bytes: int
    _description: Description = field(repr=False, compare=False, kw_only=True)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "key": tuple(said["key"]), "runs": [RunInfo(**run) for run in said["runs"]]}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values, the same as in the shell's `info --format json`."""
        return {**_Described.to_dict(self), "key": list(self.key)}

    def _bars(self) -> str:
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


def _findings(said: list[dict[str, str]]) -> list[Finding]:
    return [Finding(**finding) for finding in said]


def _fill(title: str, used: int, limit: int) -> str:
    free = max(0, limit - used)
    size = _pictures.human_bytes
    return _pictures.bar(title, [Part("used", used, ORANGE, size(used)), Part("free", free, GREY, size(free))])


def _run_colour(run: RunInfo) -> str:
    return GREEN if run.passes > 1 else ORANGE

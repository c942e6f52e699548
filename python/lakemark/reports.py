"""What calls tell about what they found and did: plain dataclasses that also draw themselves in notebooks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from lakemark import _pictures
from lakemark._pictures import Part

__all__ = [
    "BuildReport",
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

_SKIPPED = "#b8c4ce"
_KNOWN = "#2e7d5b"
_READ = "#d9822b"


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
class CompactReport:
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

    @classmethod
    def from_json(cls, text: str) -> CompactReport:
        """Makes a report from its JSON form."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        if not self.segments_written:
            return "nothing to merge: every index has as few segments as its files_per_segment allows"
        return (
            f"{', '.join(self.indexes)}: {self.segments_merged:,} segments merged into {self.segments_written:,}, "
            f"{_pictures.human_bytes(self.bytes_written)}, {self.seconds:.2f} s"
        )

    def _repr_html_(self) -> str:
        return _pictures.definitions(
            [
                ("indexes", ", ".join(self.indexes)),
                ("segments merged", f"{self.segments_merged:,}"),
                ("segments written", f"{self.segments_written:,}"),
                ("written", _pictures.human_bytes(self.bytes_written)),
                ("time", f"{self.seconds:.2f} s"),
            ]
        )


@dataclass(frozen=True, slots=True)
class BuildReport:
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

    @classmethod
    def from_json(cls, text: str) -> BuildReport:
        """Makes a report from its JSON form."""
        values = json.loads(text)
        declined = [Finding(**finding) for finding in values.pop("declined")]
        false_statistics = [Finding(**finding) for finding in values.pop("false_statistics")]
        return cls(declined=declined, false_statistics=false_statistics, **values)

    def __str__(self) -> str:
        if not self.segments:
            able = " that they can" if self.declined else ""
            done = f"nothing to build: the indexes cover every file{able}"
        else:
            done = (
                f"{', '.join(self.indexes)}: {self.rows:,} rows of {self.files:,} files indexed into "
                f"{self.segments:,} segments, {_pictures.human_bytes(self.bytes_written)}, {self.seconds:.2f} s"
            )
        if self.repaired:
            done += f"; {self.repaired:,} segments were missing or damaged, and count no more"
        if self.adopted:
            done += f"; took over {self.adopted:,} touched files"
        return "\n".join([done, *(f"{finding.path}: {finding.problem}" for finding in self.false_statistics)])

    def _repr_html_(self) -> str:
        return _pictures.definitions(
            [
                ("indexes", ", ".join(self.indexes)),
                ("files read", f"{self.files:,}"),
                ("rows read", f"{self.rows:,}"),
                ("segments written", f"{self.segments:,}"),
                ("written", _pictures.human_bytes(self.bytes_written)),
                ("time", f"{self.seconds:.2f} s"),
            ]
        )


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
class VerifyReport:
    """What a verification found.

    Attributes:
        indexes: One verdict per index.
        false_statistics: Data files of which a build has seen that the footer's statistics exclude values
            that are there.
    """

    indexes: list[IndexVerdict]
    false_statistics: list[Finding]

    @classmethod
    def from_json(cls, text: str) -> VerifyReport:
        """Makes a report from its JSON form."""
        values = json.loads(text)
        return cls(
            [
                IndexVerdict(
                    name=verdict["name"],
                    files_ok=verdict["files_ok"],
                    damaged=[Finding(**finding) for finding in verdict["damaged"]],
                    stale=[Finding(**finding) for finding in verdict["stale"]],
                )
                for verdict in values["indexes"]
            ],
            [Finding(**finding) for finding in values["false_statistics"]],
        )

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged. Stale index files are no damage: they are not used."""
        return not any(verdict.damaged for verdict in self.indexes)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = []
        for verdict in self.indexes:
            state = "damaged" if verdict.damaged else "ok"
            lines.append(f"{verdict.name}: {state}, {verdict.files_ok:,} files verified")
            lines += [f"  damaged {finding.path}: {finding.problem}" for finding in verdict.damaged]
            lines += [f"  stale {finding.path}: {finding.problem}" for finding in verdict.stale]
        lines += [f"{finding.path}: {finding.problem}" for finding in self.false_statistics]
        return "\n".join(lines) or "no indexes"

    def _repr_html_(self) -> str:
        return (
            "".join(
                _pictures.bar(
                    verdict.name,
                    [
                        Part("files verified", verdict.files_ok, _KNOWN),
                        Part("damaged", len(verdict.damaged), _READ),
                        Part("stale", len(verdict.stale), _SKIPPED),
                    ],
                )
                for verdict in self.indexes
            )
            or "<p>no indexes</p>"
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
class VacuumReport:
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

    @classmethod
    def from_json(cls, text: str) -> VacuumReport:
        """Makes a report from its JSON form."""
        values = json.loads(text)
        removed = [Waste(**waste) for waste in values.pop("removed")]
        return cls(removed=removed, **values)

    def __str__(self) -> str:
        did = "would remove" if self.dry_run else "removed"
        return (
            f"{did} {len(self.removed):,} files, {_pictures.human_bytes(self.bytes)}; "
            f"{self.manifests_kept:,} manifests and {self.segments_kept:,} segments stay"
        )

    def _repr_html_(self) -> str:
        return _pictures.definitions(
            [
                ("would be removed" if self.dry_run else "removed", f"{len(self.removed):,} files"),
                ("bytes", _pictures.human_bytes(self.bytes)),
                ("manifests kept", f"{self.manifests_kept:,}"),
                ("segments kept", f"{self.segments_kept:,}"),
                ("time", f"{self.seconds:.2f} s"),
            ]
        )


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
        coverage: Share of the data files for which the indexes narrowed anything or told everything.
        files_total: Data files of the table.
        files_pruned: Data files that need not be opened.
        files_unknown: Data files that are scanned as if there were no indexes.
        row_groups_total: Row groups of the files that are not unknown.
        row_groups_pruned: Row groups among them that need not be read.
        rows_total: Rows of the files that are not unknown.
        rows_certain: Rows that are in the answer for sure.
        rows_uncertain: Rows that must be read and tested.
        index_reads: Reads of the store.
        index_bytes: Bytes of these reads.
        seconds: Wall time.
    """

    leaves: list[Leaf]
    coverage: float
    files_total: int
    files_pruned: int
    files_unknown: int
    row_groups_total: int
    row_groups_pruned: int
    rows_total: int
    rows_certain: int
    rows_uncertain: int
    index_reads: int
    index_bytes: int
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
        known_files = self.files_total - self.files_pruned - self.files_unknown
        neither = self.rows_total - self.rows_certain - self.rows_uncertain
        return (
            _pictures.html_table(columns, rows, more=False)
            + _pictures.bar(
                "files",
                [
                    Part("skipped", self.files_pruned, _SKIPPED),
                    Part("read in part", known_files, _KNOWN),
                    Part("scanned", self.files_unknown, _READ),
                ],
            )
            + _pictures.bar(
                "row groups",
                [
                    Part("skipped", self.row_groups_pruned, _SKIPPED),
                    Part("read", self.row_groups_total - self.row_groups_pruned, _KNOWN),
                ],
            )
            + _pictures.bar(
                "rows",
                [
                    Part("skipped", neither, _SKIPPED),
                    Part("certain", self.rows_certain, _KNOWN),
                    Part("to test", self.rows_uncertain, _READ),
                ],
            )
            + f"<p>{self.index_reads:,} reads of the store, {_pictures.human_bytes(self.index_bytes)}, "
            f"{self.seconds * 1000:.1f} ms</p>"
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a table at one moment.

    Attributes:
        manifest: Number of the manifest that lists the indexes; none before the first index.
        delta_version: Version of the Delta table; none for plain Parquet.
        files: Data files, relative to the table.
        bytes: Bytes of the data files.
        rows: Rows of the data files, hidden ones included, where the indexes know them for every file.
        rows_hidden: Rows of the data files that deletion vectors or pending updates hide.
        rows_pending: Rows that are in no data file yet.
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
    rows_hidden: int
    rows_pending: int
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
class TableInfo:
    """A table at a glance.

    Attributes:
        location: Where the data is.
        format: `parquet` or `delta`.
        store: Where the indexes are; none for a glob or a single file opened without a store.
        columns: Number of columns.
        files: Number of data files.
        bytes: Bytes of the data files.
        rows: Rows that the table shows.
        manifest: Number of the manifest, if there is one.
        delta_version: Version of the Delta table, if it is one.
        index_bytes: Bytes of all index files.
        indexes: The indexes.
        updates: How pending updates stand; none if the table takes none.
    """

    location: str
    format: str
    store: str | None
    columns: int
    files: int
    bytes: int
    rows: int
    manifest: int | None
    delta_version: int | None
    index_bytes: int
    indexes: list[Index]
    updates: UpdatesInfo | None = None

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = [
            ("location", self.location),
            ("format", self.format),
            ("store", self.store or "none"),
            ("columns", f"{self.columns:,}"),
            ("files", f"{self.files:,}, {_pictures.human_bytes(self.bytes)}"),
            ("rows", f"{self.rows:,}"),
        ]
        if self.delta_version is not None:
            pairs.append(("delta version", str(self.delta_version)))
        pairs += [
            (
                f"index {index.name}",
                (
                    f"{index.kind} ({index.encoding}) on {index.column}, {index.coverage:.0%} covered, "
                    f"{_pictures.human_bytes(index.bytes)}"
                ),
            )
            for index in self.indexes
        ]
        if self.updates is not None:
            pairs += self.updates._pairs()  # noqa: SLF001 - one module
        return pairs

    def __str__(self) -> str:
        pairs = self._pairs()
        width = max(len(name) for name, _ in pairs) + 1
        return "\n".join(f"{name + ':':<{width}} {value}" for name, value in pairs)

    def _repr_html_(self) -> str:
        return _pictures.definitions(self._pairs())


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
    """A sorted file of pending updates.

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
class PublishReport:
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

    @classmethod
    def from_json(cls, text: str) -> PublishReport:
        """Makes a report from its JSON form."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """What a migration did.

    Attributes:
        rows: Pending rows that are in the data files now.
        rows_hidden: Rows of data files that they replaced, and rows that were deleted.
        files_replaced: Data files that were replaced.
        files_written: Data files that were written.
        bytes_written: Their bytes.
        delta_version: The version of the Delta table that has them.
        seconds: Wall time.
    """

    rows: int
    rows_hidden: int
    files_replaced: int
    files_written: int
    bytes_written: int
    delta_version: int | None
    seconds: float

    @classmethod
    def from_json(cls, text: str) -> MigrateReport:
        """Makes a report from its JSON form."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        if not self.files_written and not self.files_replaced:
            return "nothing to migrate"
        version = "" if self.delta_version is None else f", Delta version {self.delta_version}"
        return (
            f"{self.rows:,} rows folded, {self.rows_hidden:,} replaced or removed: {self.files_replaced:,} files "
            f"replaced by {self.files_written:,}, {_pictures.human_bytes(self.bytes_written)}, {self.seconds:.2f} s"
            f"{version}"
        )

    def _repr_html_(self) -> str:
        return _pictures.definitions(
            [
                ("rows folded", f"{self.rows:,}"),
                ("rows replaced or removed", f"{self.rows_hidden:,}"),
                ("files replaced", f"{self.files_replaced:,}"),
                ("files written", f"{self.files_written:,}"),
                ("bytes written", _pictures.human_bytes(self.bytes_written)),
                ("Delta version", "" if self.delta_version is None else str(self.delta_version)),
                ("seconds", f"{self.seconds:.2f}"),
            ]
        )


@dataclass(frozen=True, slots=True)
class UpdatesInfo:
    """How the pending updates of a table stand. `str()` gives it as text.

    Attributes:
        key: The columns of the key.
        sequence: The sequence number of the last change.
        buffer_bytes: Bytes of the buffer, which is the log on the disk.
        buffer_limit: Bytes at which it becomes a run: as many as give a run of S pages or more.
        buffer_keys: Keys that changes in the buffer are about.
        rows_pending: Rows that scans add to those of the data files.
        rows_hidden: Rows of the data files that scans leave out, those of deletion vectors included.
        base_rows: Rows of the data files, as far as the indexes know them.
        cache_bytes: Bytes of the runs.
        cache_limit: Bytes that runs may take before changes are refused.
        cache_share: `cache_bytes / cache_limit`.
        migration_threshold: The share from which on writers begin a migration, if one was chosen.
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
    rows_pending: int
    rows_hidden: int
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

    @classmethod
    def from_json(cls, text: str) -> UpdatesInfo:
        """Makes a report from its JSON form."""
        values = json.loads(text)
        key, runs = tuple(values.pop("key")), [RunInfo(**run) for run in values.pop("runs")]
        return cls(key=key, runs=runs, **values)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values, the same as in the shell's `info --format json`."""
        return {**asdict(self), "key": list(self.key)}

    def _pairs(self) -> list[tuple[str, str]]:
        size = _pictures.human_bytes
        twice = sum(run.passes > 1 for run in self.runs)
        share = self.migration_threshold
        migrated = "" if share is None else f", migrated from {share:.0%} on"
        return [
            ("key", ", ".join(self.key)),
            ("last change", f"number {self.sequence:,}"),
            ("pending rows", f"{self.rows_pending:,}, {self.rows_hidden:,} rows of data files hidden"),
            ("buffer", f"{size(self.buffer_bytes)} of {size(self.buffer_limit)}, {self.buffer_keys:,} keys"),
            ("runs", f"{len(self.runs):,} of {self.runs_limit:,}, {twice:,} of them merged"),
            ("cache", f"{size(self.cache_bytes)} of {size(self.cache_limit)}, {self.cache_share:.1%} full" + migrated),
            ("writes per update", f"{self.writes_per_update:.2f} of at most {self.writes_bound:.2f}"),
            (
                "written",
                f"{size(self.log_bytes)} to logs, {size(self.flushed_bytes)} to runs, {size(self.merged_bytes)} merged",
            ),
        ]

    def __str__(self) -> str:
        pairs = self._pairs()
        width = max(len(name) for name, _ in pairs) + 1
        return "\n".join(f"{name + ':':<{width}} {value}" for name, value in pairs)

    def _repr_html_(self) -> str:
        writes = round(1000 * self.writes_per_update), round(1000 * self.writes_bound)
        return (
            _pictures.definitions(self._pairs())
            + _fill("buffer", self.buffer_bytes, self.buffer_limit)
            + _fill("cache", self.cache_bytes, self.cache_limit)
            + _pictures.bar(
                "writes per update",
                [
                    Part("so far", writes[0], _KNOWN, f"{self.writes_per_update:.2f}"),
                    Part("of at most", max(0, writes[1] - writes[0]), _SKIPPED, f"{self.writes_bound:.2f}"),
                ],
            )
            + _pictures.bar("runs", [Part(f"pass {run.passes}", run.rows, _run_colour(run)) for run in self.runs])
        )


def _fill(title: str, used: int, limit: int) -> str:
    free = max(0, limit - used)
    size = _pictures.human_bytes
    return _pictures.bar(title, [Part("used", used, _READ, size(used)), Part("free", free, _SKIPPED, size(free))])


def _run_colour(run: RunInfo) -> str:
    return _KNOWN if run.passes > 1 else _READ

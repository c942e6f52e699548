"""What building, compacting, verifying and vacuuming did and found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakemark import _pictures
from lakemark._pictures import GREEN, GREY, ORANGE, Part
from lakemark.reports.described import Described

__all__ = ["BuildReport", "CompactReport", "Finding", "IndexVerdict", "VacuumReport", "VerifyReport", "Waste"]


@dataclass(frozen=True, slots=True)
class BuildReport(Described):
    """What a build did.

    Attributes:
        indexes: Names of the indexes that grew.
        files: Data files that were indexed.
        rows: Rows of these files.
        segments: Sidecar files that were written.
        taken_over: Sidecar files that were there: a build that was stopped had left them, or another one had just
            written them. Nobody read their data files again.
        bytes_written: Bytes of the sidecar files that were written.
        spilled: Parts that went to disk because of the memory limit.
        failed: Data files that could not be indexed now, each with the reason: they are damaged, cannot be read,
            vanished, or changed while they were read. The next build tries them again.
        adopted: Touched data files whose hashes proved that nothing changed, so that they keep their indexes.
        verified: Sidecar files that were compared with the data.
        repaired: Sidecar files that were missing or damaged: what they covered is indexed again.
        declined: Data files whose column an index leaves out for good, each with the reason.
        false_statistics: Data files of which the build has seen that the footer's statistics exclude values
            that are there. Nothing goes by these statistics any more; other readers may.
        segments_merged: Segments that were merged afterwards, as they were too many; they stay until a `vacuum`.
        merged_into: Segments that took their place.
        bytes_merged: Their bytes.
        seconds: Wall time.
    """

    indexes: list[str]
    files: int
    rows: int
    segments: int
    taken_over: int
    bytes_written: int
    spilled: int
    failed: list[Finding]
    adopted: int
    verified: int
    repaired: int
    declined: list[Finding]
    false_statistics: list[Finding]
    segments_merged: int
    merged_into: int
    bytes_merged: int
    seconds: float

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, **{name: _findings(said[name]) for name in ("failed", "declined", "false_statistics")}}


@dataclass(frozen=True, slots=True)
class CompactReport(Described):
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


@dataclass(frozen=True, slots=True)
class VerifyReport(Described):
    """What a verification found.

    Attributes:
        indexes: One verdict per index.
        false_statistics: Data files of which a build has seen that the footer's statistics exclude values
            that are there.
    """

    indexes: list[IndexVerdict]
    false_statistics: list[Finding]

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

    def _drawn(self) -> str:
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
class Finding:
    """A file and what is wrong with it.

    Attributes:
        path: The segment or data file.
        problem: What is wrong.
    """

    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class VacuumReport(Described):
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

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "removed": [Waste(**waste) for waste in said["removed"]]}


@dataclass(frozen=True, slots=True)
class Waste:
    """A file of the store that nobody needs any more.

    Attributes:
        path: The file, relative to the store.
        bytes: Its length.
    """

    path: str
    bytes: int


def _findings(said: list[dict[str, str]]) -> list[Finding]:
    return [Finding(**finding) for finding in said]

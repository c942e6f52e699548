"""What a query of Spark's reads of indexed tables: drawn as text in a terminal and as pictures in a notebook."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from lakemark import _pictures
from lakemark._pictures import GREEN, GREY, Part
from lakemark.reports import ExplainReport

__all__ = ["SparkExplainReport", "SparkScan"]

_NO_SCAN = (
    "No part of this query reads through Lakemark, so that no index is used. Read the table with "
    'spark.read.format("lakemark").load(path), or name it in the catalog of lakemark.spark.configure: '
    "SELECT … FROM lm.`/path/of/the/table`."
)


@dataclass(frozen=True, slots=True)
class SparkScan:
    """What one scan of an indexed table reads, or did read if the query has run. `str()` draws it.

    Attributes:
        table: The table as plans name it.
        filters_pushed: Conditions that the indexes were probed for.
        filters_left: Conditions that Spark tests for each row that is read.
        runtime_columns: Columns of which a join will give the keys when the query runs, if its other side is broadcast.
        runtime_filters: The keys that a join gave when the query ran.
        aggregates: What the indexes answered themselves, so that nothing is read: groups first.
        limit: How many rows are enough, if the scan knows.
        top: Which rows come first, if only these are selected; empty otherwise.
        splits: Tasks that read; none if the indexes answered.
        rows: Rows that they give, where the indexes know.
        bytes: Bytes of the columns that they read, roughly.
        rows_buffered: Buffered rows among them.
        rows_index_only: Rows among them that an index gave with their values, so that no data file is read for them.
        covering_index: The index that gave them; none without such rows.
        indexes: What the indexes said, with their numbers; none if they answered themselves.
    """

    table: str
    filters_pushed: list[str]
    filters_left: list[str]
    runtime_columns: list[str]
    runtime_filters: list[str]
    aggregates: list[str]
    limit: int | None
    top: str
    splits: int
    rows: int | None
    bytes: int
    rows_buffered: int
    rows_index_only: int
    covering_index: str | None
    index_report: ExplainReport | None = field(default=None)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SparkScan:
        """Makes a scan from its JSON form."""
        report, text = values.pop("report"), values.pop("report_text")
        index_report = None if report is None else ExplainReport.from_text(json.dumps(report), text)
        return cls(index_report=index_report, **values)

    def to_dict(self) -> dict[str, Any]:
        """The scan as plain Python values."""
        values = asdict(self)
        values["index_report"] = None if self.index_report is None else self.index_report.to_dict()
        return values

    def _pairs(self) -> list[tuple[str, str]]:
        rows = "unknown before they are read" if self.rows is None else f"{self.rows:,}"
        buffered = f", {self.rows_buffered:,} of them buffered" if self.rows_buffered else ""
        read = f"{rows} in {self.splits:,} tasks, about {_pictures.human_bytes(self.bytes)}{buffered}"
        pairs = [
            ("filters pushed", ", ".join(self.filters_pushed)),
            ("filters that Spark tests", ", ".join(self.filters_left)),
            ("keys expected from a join", ", ".join(self.runtime_columns)),
            ("keys from a join", ", ".join(self.runtime_filters)),
            ("index-only", ", ".join(self.aggregates)),
            ("index-only rows", f"{self.rows_index_only:,} by {self.covering_index}" if self.rows_index_only else ""),
            ("limit", "" if self.limit is None else f"{self.limit:,}"),
            ("the first", self.top),
            ("rows read", "none: the answer has " + rows if self.aggregates else read),
        ]
        return [(name, value) for name, value in pairs if value]

    def _bars(self) -> list[tuple[str, list[Part]]]:
        if self.index_report is None:
            return []
        index_report = self.index_report
        return [
            (
                "files",
                [
                    Part("read", index_report.files_total - index_report.files_pruned, GREEN),
                    Part("skipped", index_report.files_pruned, GREY),
                ],
            ),
            (
                "row groups",
                [
                    Part("read", index_report.row_groups_total - index_report.row_groups_pruned, GREEN),
                    Part("skipped", index_report.row_groups_pruned, GREY),
                ],
            ),
        ]

    def __str__(self) -> str:
        pairs = self._pairs()
        width = max(len(name) for name, _ in pairs) + 1
        lines = [f"scan of {self.table}"]
        lines += [f"  {name + ':':<{width}} {value}" for name, value in pairs]
        lines += [f"  {drawn}" for title, parts in self._bars() if (drawn := _pictures.text_bar(title, parts))]
        if self.index_report is not None:
            lines += ["  what the index said:", *(f"  {line}" for line in str(self.index_report).splitlines())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        drawn = "" if self.index_report is None else self.index_report._repr_html_()
        return f"<h4>scan of {escape(self.table)}</h4>{_pictures.definitions(self._pairs())}{drawn}"


@dataclass(frozen=True, slots=True)
class SparkExplainReport:
    """What a query of Spark's reads of indexed tables. `str()` draws it.

    Attributes:
        scans: One for each scan of an indexed table, in the order of the plan.
    """

    scans: list[SparkScan]

    @classmethod
    def from_json(cls, text: str) -> SparkExplainReport:
        """Makes a report from its JSON form."""
        return cls([SparkScan.from_dict(scan) for scan in json.loads(text)])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        return {"scans": [scan.to_dict() for scan in self.scans]}

    def __str__(self) -> str:
        return "\n\n".join(str(scan) for scan in self.scans) or _NO_SCAN

    def _repr_html_(self) -> str:
        drawn = "".join(scan._repr_html_() for scan in self.scans)
        return drawn or f"<p>{escape(_NO_SCAN)}</p>"

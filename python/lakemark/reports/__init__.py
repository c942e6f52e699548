"""What calls report about what they found and did: plain dataclasses that also draw themselves in notebooks.

Each module has the reports of one topic; those that come with a description have `described` below them, and `table`
has `index` and `updates`. A report is made of what the native module wrote, and calls nobody. Of the package this room
uses the drawing (`_pictures`) alone. Whatever answers a call may use it: `table`, `advice`, `spark`, `spark_report`.
"""

from lakemark.reports.explain import ExplainReport, Leaf
from lakemark.reports.health import HealthReport, Problem
from lakemark.reports.index import Encoding, Index, Indexes, IndexKind
from lakemark.reports.stats import Stat, Stats
from lakemark.reports.table import ColumnInfo, Snapshot, TableInfo, Version
from lakemark.reports.updates import MigrateReport, PublishReport, RunInfo, UpdatesInfo, Written
from lakemark.reports.upkeep import (
    BuildReport,
    CompactReport,
    Finding,
    IndexVerdict,
    VacuumReport,
    VerifyReport,
    Waste,
)

__all__ = [
    "BuildReport",
    "ColumnInfo",
    "CompactReport",
    "Encoding",
    "ExplainReport",
    "Finding",
    "HealthReport",
    "Index",
    "IndexKind",
    "IndexVerdict",
    "Indexes",
    "Leaf",
    "MigrateReport",
    "Problem",
    "PublishReport",
    "RunInfo",
    "Snapshot",
    "Stat",
    "Stats",
    "TableInfo",
    "UpdatesInfo",
    "VacuumReport",
    "VerifyReport",
    "Version",
    "Waste",
    "Written",
]

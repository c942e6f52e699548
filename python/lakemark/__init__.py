"""Indexes beside a data lake: sidecar index files for Parquet and Delta tables that already exist.

>>> import lakemark
>>> table = lakemark.Table(getfixture("flights"))      # a folder, a glob, a file or a Delta table
>>> index = table.create_index("origin", using="bitmap", progress=False)
>>> f"{index.coverage:.0%} of {index.rows} rows"
'100% of 30 rows'
>>> table.count("origin = 'JFK'")                      # answered from the index alone
10
>>> far = table.scan("origin = 'JFK' AND distance > 2000", columns=["flight"])
>>> far.to_arrow().sort_by("flight").to_pydict()       # rows of several files come in no order
{'flight': [22, 25, 28]}
>>> session = lakemark.connect()
>>> session.register("flights", table)
>>> session.sql("SELECT max(distance) AS far FROM flights WHERE origin = 'LGA'")
 far
----
2900
"""

from lakemark import exceptions
from lakemark._internal import version as _version
from lakemark.advice import Advice, LayoutHint, Proposal, QueryGain, QueryProblem
from lakemark.engines import scan_duckdb, scan_polars
from lakemark.exceptions import (
    AlreadyExistsError,
    CacheFullError,
    CancelledError,
    ConflictError,
    ConstraintViolationError,
    CorruptError,
    InternalError,
    InvalidInputError,
    LakemarkError,
    LakemarkIOError,
    LakemarkWarning,
    MissingPackageError,
    NotFoundError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StoreMismatchError,
    UnsupportedError,
)
from lakemark.links import LinkRows, Links
from lakemark.reports import (
    BuildReport,
    ColumnInfo,
    CompactReport,
    ExplainReport,
    Finding,
    HealthReport,
    Index,
    Indexes,
    IndexVerdict,
    Leaf,
    MigrateReport,
    Problem,
    PublishReport,
    RunInfo,
    Snapshot,
    Stat,
    Stats,
    TableInfo,
    UpdatesInfo,
    VacuumReport,
    VerifyReport,
    Version,
    Waste,
    Written,
)
from lakemark.rows import Rows
from lakemark.schema import Field, Schema
from lakemark.session import Session, connect
from lakemark.table import Table

__version__ = _version()

__all__ = [
    "Advice",
    "AlreadyExistsError",
    "BuildReport",
    "CacheFullError",
    "CancelledError",
    "ColumnInfo",
    "CompactReport",
    "ConflictError",
    "ConstraintViolationError",
    "CorruptError",
    "ExplainReport",
    "Field",
    "Finding",
    "HealthReport",
    "Index",
    "IndexVerdict",
    "Indexes",
    "InternalError",
    "InvalidInputError",
    "LakemarkError",
    "LakemarkIOError",
    "LakemarkWarning",
    "LayoutHint",
    "Leaf",
    "LinkRows",
    "Links",
    "MigrateReport",
    "MissingPackageError",
    "NotFoundError",
    "Problem",
    "Proposal",
    "PublishReport",
    "QueryGain",
    "QueryProblem",
    "Rows",
    "RunInfo",
    "Schema",
    "SchemaMismatchError",
    "Session",
    "Snapshot",
    "SnapshotExpiredError",
    "Stat",
    "Stats",
    "StoreMismatchError",
    "Table",
    "TableInfo",
    "UnsupportedError",
    "UpdatesInfo",
    "VacuumReport",
    "VerifyReport",
    "Version",
    "Waste",
    "Written",
    "connect",
    "exceptions",
    "scan_duckdb",
    "scan_polars",
]

"""A table and its indexes."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import TYPE_CHECKING

from lakemark import _internal
from lakemark._packages import require, require_datafusion
from lakemark.exceptions import InvalidInputError
from lakemark.reports import Stats, TableInfo, UpdatesInfo, Version
from lakemark.table.changes import Changes
from lakemark.table.handle import names_of
from lakemark.table.queries import Queries
from lakemark.table.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakemark.engines.dataset import TableDataset

__all__ = ["Table"]


class Table(Queries, Changes, Upkeep):
    """A folder of Parquet files, a glob, one file or a Delta table, with its indexes and its buffered updates.

    Opening a table reads nothing of the data, unless a `key` is declared by it. Indexes are kept in `_lakemark/` beside
    it, or in `store`; the data files are never touched, and deleting the indexes never changes an answer.

    >>> import lakemark
    >>> table = lakemark.Table(getfixture("flights"))
    >>> table.create_index("origin", using="bitmap", progress=False).name
    'origin_bitmap'
    >>> table.count("origin = 'JFK' AND distance > 1000")
    6

    With a key it takes updates, which every reader sees at once (see docs/updates.md):

    >>> table = lakemark.Table(getfixture("flights"), key="flight")
    >>> table.upsert([{"flight": 7, "origin": "SEA", "distance": 50}])
    Written(sequence=1, rows=1)
    >>> table.count("origin = 'JFK'"), table.count("origin = 'SEA'")
    (9, 1)

    Args:
        path: Path or URL of the table, or its name in `lakemark.toml` or in a catalog, as `uc://main.sales.trips` (see
            docs/configuration.md).
        store: Path or URL for the indexes; needed for globs and for places that cannot be written.
        key: The column, or columns, that tell the rows apart. The first time it is declared, as by `declare_key`.
        storage_options: Options of the object store, such as `aws_region`.
        profile: The profile of `lakemark.toml` that has the credentials. Without one it is the profile that the file
            names for the table, or the one whose scope is the closest.
        version: A version to read, and to do nothing else with, in place of the newest state: of a Delta table what
            every reader of Delta calls so, of others the number of a manifest; `history` lists them.
        max_staleness: How long queries may go by the data files that an earlier one found, without a look at the
            folder or the Delta log. Files of other programs are seen that late at most; changes by Lakemark at once.
            The earlier query may be one of another object of this process.

    Raises:
        NotFoundError: There is nothing at `path`, or no such version.
        SnapshotExpiredError: What the version needs is gone.
        InvalidInputError: There is something, and it is no table; or the table has another key. A configuration that
            cannot be understood is named with its line.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        store: str | os.PathLike[str] | None = None,
        key: str | Sequence[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        profile: str | None = None,
        version: int | None = None,
        max_staleness: timedelta = timedelta(0),
    ) -> None:
        self._inner = _internal.Table(
            os.fspath(path),
            None if store is None else os.fspath(store),
            dict(storage_options or {}),
            profile,
            version,
            max(0, max_staleness // timedelta(microseconds=1)),
        )
        if key is not None and self.key != tuple(names_of(key)):
            self.declare_key(key, progress=False)

    def __repr__(self) -> str:
        at = "" if self.version is None else f", version={self.version}"
        return f"lakemark.Table({self.location!r}{at})"

    def _repr_html_(self) -> str:
        return self.info()._repr_html_()

    @property
    def location(self) -> str:
        """Where the data is, as it was given."""
        return self._inner.location()

    @property
    def version(self) -> int | None:
        """The version that is read; none for the newest state."""
        return self._inner.version()

    def history(self, limit: int | None = None) -> list[Version]:
        """Lists the versions that `Table(path, version=…)` takes.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"), key="flight")
        >>> table.delete([1, 2, 3]).rows
        3
        >>> table.flush()
        >>> newest = table.history(1)[0]
        >>> newest.operation, newest.rows
        ('flush changes', 3)
        >>> lakemark.Table(table.location, version=newest.version - 1).count()
        30

        Those of a Delta table are its commits. Those of others are the manifests of the store: changes belong to the
        version that a flush, or a migration, makes of them.

        Args:
            limit: How many at most; all that are still there if there is none.

        Returns:
            The versions, newest first.
        """
        return [Version.from_dict(version) for version in json.loads(self._inner.history(limit))]

    def stats(self) -> Stats:
        """Tells what was done through this object, and how much the indexes cover now.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"))
        >>> _ = table.create_index("origin", using="bitmap", name="o", progress=False)
        >>> stats = table.stats()
        >>> stats["lakemark_indexed_rows_total"], stats["lakemark_coverage_ratio"]
        (30.0, {'o': 1.0})
        >>> stats.meaning("lakemark_coverage_ratio")
        'Share of the data files that an index covers, 0 to 1.'

        Returns:
            The numbers that the command tells as OpenMetrics, by the same names, each with its meaning. What is counted
            by verb, kind of request or index is a dictionary of its own. A notebook draws them as a table.
        """
        return Stats.from_json(self._inner.stats())

    def info(self) -> TableInfo:
        """Describes the table: counts its rows, measures its files and indexes."""
        return TableInfo.of(*self._inner.info())

    @property
    def updates(self) -> UpdatesInfo | None:
        """How the buffered updates stand now; none if the table takes no updates."""
        found = self._inner.updates()
        return None if found is None else UpdatesInfo.from_json(*found)

    def to_pyarrow_dataset(self, *, use_index: bool = True) -> TableDataset:
        """The table as a dataset of pyarrow: `scanner`, `to_table`, `to_batches`, `count_rows`, `head`, `schema`.

        Whatever reads datasets of pyarrow reads it: DuckDB, Polars, pandas. Conditions and columns go to the indexes.

        >>> import lakemark, pyarrow.compute as pc
        >>> dataset = lakemark.Table(getfixture("flights")).to_pyarrow_dataset()
        >>> dataset.to_table(columns=["flight"], filter=pc.field("distance") > 2800).to_pandas()
           flight
        0      29

        Args:
            use_index: Whether the indexes are used; the rows are the same without.

        Returns:
            The dataset. Each scan of it reads the rows that the table has then.

        Raises:
            MissingPackageError: pyarrow is not installed.
        """
        require("pyarrow", "to_pyarrow_dataset")
        from lakemark.engines.dataset import TableDataset

        return TableDataset(self, use_index=use_index)

    def __datafusion_table_provider__(self, session: object | None = None) -> object:
        # Versions before 52 give no session.
        require_datafusion()
        if session is None:
            raise InvalidInputError("the datafusion package hands its session over: ctx.register_table(name, table)")
        return self._inner.__datafusion_table_provider__(session)

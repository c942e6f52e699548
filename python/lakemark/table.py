"""A table and its indexes."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from lakemark import _arrow, _internal
from lakemark._progress import Progress, shown
from lakemark.advice import Advice, text_of
from lakemark.exceptions import InvalidInputError, NotFoundError
from lakemark.links import Links
from lakemark.reports import (
    BuildReport,
    CompactReport,
    ExplainReport,
    Index,
    IndexKind,
    MigrateReport,
    PublishReport,
    Snapshot,
    TableInfo,
    UpdatesInfo,
    VacuumReport,
    VerifyReport,
    Version,
    Written,
)
from lakemark.rows import Rows
from lakemark.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakemark._internal import Operation

__all__ = ["Table"]


class Table:
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
        path: Path or URL of the table.
        store: Path or URL for the indexes; needed for globs and for places that cannot be written.
        key: The column, or columns, that tell the rows apart. The first time it is declared, as by `declare_key`.
        storage_options: Options of the object store, such as `aws_region`.
        version: A version to read, and to do nothing else with, in place of the newest state: of a Delta table what
            every reader of Delta calls so, of others the number of a manifest; `history` lists them.
        max_staleness: How long queries may go by the data files that an earlier one found, without a look at the
            folder or the Delta log. Files of other programs are seen that late at most; changes by Lakemark at once.
            The earlier query may be one of another object of this process.

    Raises:
        NotFoundError: There is nothing at `path`, or no such version.
        SnapshotExpiredError: What the version needs is gone.
        InvalidInputError: There is something, and it is no table; or the table has another key.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        store: str | os.PathLike[str] | None = None,
        key: str | Sequence[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        version: int | None = None,
        max_staleness: timedelta = timedelta(0),
    ) -> None:
        self._inner = _internal.Table(
            os.fspath(path),
            None if store is None else os.fspath(store),
            dict(storage_options or {}),
            version,
            max(0, max_staleness // timedelta(microseconds=1)),
        )
        if key is not None and self.key != tuple(_names(key)):
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

    @property
    def schema(self) -> Schema:
        """The columns: those in the files, then partition columns."""
        return self._schema()

    def _schema(self) -> Schema:
        return Schema(self._inner.schema())

    @property
    def snapshot(self) -> Snapshot:
        """The state of the table now."""
        return Snapshot.from_json(self._inner.snapshot())

    @property
    def indexes(self) -> list[Index]:
        """The indexes and how much of the table they cover now."""
        return self.snapshot.indexes

    def metrics(self) -> dict[str, float | dict[str, float]]:
        """What was done through this object, and how much the indexes cover now.

        Returns:
            Numbers by the names that docs/operations.md lists, such as `lakemark_lag_seconds`. What is counted by verb,
            kind of request or index is a dictionary of its own: `metrics()["lakemark_coverage_ratio"]["by_city"]`.
        """
        found: dict[str, float | dict[str, float]] = json.loads(self._inner.metrics())
        return found

    def info(self) -> TableInfo:
        """Describes the table: counts its rows, measures its files and indexes."""
        return TableInfo.of(*self._inner.info())

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns of the key; none if the table takes no updates."""
        key = self._inner.key()
        return None if key is None else tuple(key)

    @property
    def updates(self) -> UpdatesInfo | None:
        """How the buffered updates stand now; none if the table takes no updates."""
        found = self._inner.updates()
        return None if found is None else UpdatesInfo.from_json(*found)

    def declare_key(self, columns: str | Sequence[str], *, progress: Progress = True, **options: object) -> bool:
        """Declares the columns that tell the rows apart, so that the table takes updates.

        All rows are read once to see that none lacks the key and no key is there twice. The first column gets an index
        of the kind `key` unless it has an index that knows its rows.

        Args:
            columns: The column, or columns; no floats.
            progress: As for `build`.
            **options: `cache_bytes`, the space for buffered updates (1 GiB); `page_bytes` (64 KiB); `alpha`, more
                memory against fewer writes (1); `migration_threshold`, how full that space may be when a change begins
                a migration in the background, such as `"50%"`: see docs/updates.md.

        Returns:
            Whether it was declared now; otherwise the table has had this key already, and keeps its options.

        Raises:
            InvalidInputError: The columns do not tell the rows apart, or the table has another key.
            NotFoundError: There is no such column.
            UnsupportedError: A column is of a type that can be no key, or the store is not on a local file system.
        """
        with shown("key", progress) as tell:
            return self._inner.declare_key(_names(columns), _option_texts(options), tell)

    def insert(self, rows: object, *, txn_app_id: str | None = None, txn_version: int | None = None) -> Written:
        """Adds rows whose keys are not there.

        As every change it is made as a whole or not at all. It is durable and seen by every reader when this returns.
        Ctrl-C does not stop a change that has begun; the `KeyboardInterrupt` says what became of it.

        Args:
            rows: An Arrow stream or array (pyarrow, Polars, DuckDB, rows of Lakemark), a `pandas.DataFrame`, a dict of
                columns or a list of dicts. Columns that are missing are NULL.
            txn_app_id: A name for whoever makes the change, so that it is made once, however often it is called.
            txn_version: The number of the change, from 0 on: if the name made one with this number, or a higher one,
                before, nothing is done and the result has 0 rows. As Spark hands a batch to `foreachBatch`.

        Returns:
            The sequence number of the change, and its number of rows.

        Raises:
            AlreadyExistsError: A row with one of the keys is there; nothing was inserted.
            InvalidInputError: A key is missing, NULL or there twice in the rows; or the table has no key.
            SchemaMismatchError: The table lacks a column, or a value does not fit its column.
            CacheFullError: There is no room for more buffered updates.
        """
        return self._write("insert", _arrow.rows(rows, self._schema, may_lack=True), txn_app_id, txn_version)

    def upsert(self, rows: object, *, txn_app_id: str | None = None, txn_version: int | None = None) -> Written:
        """Adds rows, in the place of rows with the same keys.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"), key="flight")
        >>> table.upsert({"flight": [1, 99], "origin": ["SEA", "SEA"]}).rows
        2
        >>> sorted(table.scan("origin = 'SEA'").to_arrow()["flight"].to_pylist())
        [1, 99]

        Args:
            rows: As for `insert`. Columns that are missing are NULL: `update` leaves them as they are.
            txn_app_id: A name for whoever makes the change, so that it is made once, however often it is called.
            txn_version: The number of the change, from 0 on: if the name made one with this number, or a higher one,
                before, nothing is done and the result has 0 rows. As Spark hands a batch to `foreachBatch`.

        Returns:
            The sequence number of the change, and its number of rows.

        Raises:
            InvalidInputError: As for `insert`.
            SchemaMismatchError: As for `insert`.
            CacheFullError: There is no room for more buffered updates.
        """
        return self._write("upsert", _arrow.rows(rows, self._schema, may_lack=True), txn_app_id, txn_version)

    def update(self, rows: object, *, txn_app_id: str | None = None, txn_version: int | None = None) -> Written:
        """Sets some columns of the rows with these keys; the other columns stay, and absent keys change nothing.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"), key="flight")
        >>> table.update([{"flight": 3, "distance": 1}, {"flight": 1000, "distance": 1}]).rows
        2
        >>> table.scan("distance = 1").to_arrow().to_pylist()
        [{'flight': 3, 'origin': 'EWR', 'distance': 1}]

        Args:
            rows: As for `insert`: the key and the columns to set, the same ones for each row. None sets NULL.
            txn_app_id: A name for whoever makes the change, so that it is made once, however often it is called.
            txn_version: The number of the change, from 0 on: if the name made one with this number, or a higher one,
                before, nothing is done and the result has 0 rows. As Spark hands a batch to `foreachBatch`.

        Returns:
            The sequence number of the change, and its number of rows, absent keys included.

        Raises:
            InvalidInputError: As for `insert`; or no column is set.
            SchemaMismatchError: As for `insert`.
            CacheFullError: There is no room for more buffered updates.
        """
        return self._write("update", _arrow.rows(rows, self._schema, may_lack=False), txn_app_id, txn_version)

    def delete(self, keys: object, *, txn_app_id: str | None = None, txn_version: int | None = None) -> Written:
        """Removes the rows with these keys; absent keys change nothing.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"), key="flight")
        >>> table.delete([1, 2, 3])
        Written(sequence=1, rows=3)
        >>> table.count()
        27

        Args:
            keys: A list of keys (tuples where the key has several columns), an Arrow array of them, or rows as for
                `insert`, of which only the key counts.
            txn_app_id: A name for whoever makes the change, so that it is made once, however often it is called.
            txn_version: The number of the change, from 0 on: if the name made one with this number, or a higher one,
                before, nothing is done and the result has 0 rows. As Spark hands a batch to `foreachBatch`.

        Returns:
            The sequence number of the change, and its number of keys, absent ones included.

        Raises:
            InvalidInputError: As for `insert`.
            SchemaMismatchError: As for `insert`.
            CacheFullError: There is no room for more buffered updates.
        """
        return self._write(
            "delete", _arrow.key_rows(keys, lambda: self.key or (), self._schema), txn_app_id, txn_version
        )

    def _write(self, operation: Operation, rows: object, application: str | None, version: int | None) -> Written:
        transaction = None
        if application is not None and version is not None:
            if version < 0:
                raise InvalidInputError(f"txn_version is {version}; give a number from 0 on")
            transaction = (application, version)
        elif application is not None or version is not None:
            raise InvalidInputError("txn_app_id and txn_version go together; give both or none")
        return Written(*self._inner.write(operation, rows, transaction))

    def flush(self) -> None:
        """Writes the buffer of updates to a run now, and not only when it is full. Answers stay the same.

        Raises:
            InvalidInputError: The table has no key.
            CacheFullError: There is no room for the run.
        """
        self._inner.flush()

    def repair(self, buffered: Literal["keep", "discard"]) -> bool:
        """Decides what becomes of buffered changes where the store and the Delta table do not belong together any more.

        That is so where the store was put back from a backup, the table was made anew in the same place, or its log was
        set back. Reading and changing the table raise `StoreMismatchError` then. Where both are known to belong
        together, and where nothing is buffered, nothing is raised and there is nothing to decide.

        Args:
            buffered: `keep` lets the changes that the store has count over what the table has of their keys; `discard`
                forgets them.

        Returns:
            Whether there was something to decide.

        Raises:
            InvalidInputError: The table has no key, or `buffered` is neither.
            ConflictError: A migration of the table is running.
        """
        if buffered not in ("keep", "discard"):
            raise InvalidInputError(f"buffered is {buffered!r}; give 'keep' or 'discard'")
        return self._inner.repair(buffered == "keep")

    def migrate(
        self,
        fraction: float = 1.0,
        *,
        max_bytes: int | None = None,
        threshold: float | None = None,
        publish: bool = False,
        progress: Progress = True,
    ) -> MigrateReport:
        """Migrates buffered rows into the data files. Queries and changes go on meanwhile.

        Of a Delta table only the files are rewritten whose rows changed, in one commit that every reader of Delta sees,
        or with `max_bytes` in several.
        Of a folder the new files go to the store: other readers see the state before. The indexes cover the new files.

        Args:
            fraction: How much of what is buffered, above 0 up to 1: the rows with the lowest keys first.
            max_bytes: Bytes of data files that each commit writes, about. Each commit then migrates a slice of the key
                range, and other readers may see some changes of a call before the others. None is one commit for all.
            threshold: Nothing is migrated while less of the cache than this is full, from 0 to 1.
            publish: Whether to `publish` afterwards.
            progress: As for `build`: rows that are rewritten first, then rows that are indexed.

        Returns:
            What was migrated.

        Raises:
            ConflictError: Another migration is running, or others kept changing the data files; try later.
            InvalidInputError: The table has no key, or the fraction or `max_bytes` is none.
            UnsupportedError: The Delta table has a feature that cannot be kept; the message names it.
        """
        with shown("migrate", progress) as tell:
            report = MigrateReport.from_json(*self._inner.migrate(fraction, max_bytes, threshold, tell))
        if publish:
            self.publish()
        return report

    def publish(self) -> PublishReport:
        """Lets the new data files of a migrated folder be files of the folder, so that every program sees them.

        The files that they replace go to the store, where `vacuum(originals=True)` removes them when no version needs
        them. Readers of Lakemark see the same rows all the time. Others that list the folder while the change is made
        may miss rows, and never see one twice; see docs/updates.md. Every reader of Delta sees the migration of a Delta
        table anyway.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"), key="flight")
        >>> table.delete([1, 2, 3]).rows
        3
        >>> table.migrate().rows_replaced
        3
        >>> table.publish().files_published
        1

        Returns:
            What was published.

        Raises:
            ConflictError: A migration or another publication is running, or a file that was replaced has been changed.
            UnsupportedError: The table is a glob or one file, or not on a local file system.
        """
        return PublishReport.from_json(*self._inner.publish())

    def create_index(
        self,
        columns: str | Sequence[str],
        using: IndexKind | Literal["auto"] = "auto",
        name: str | None = None,
        *,
        include: str | Sequence[str] = (),
        build: bool = True,
        if_not_exists: bool = False,
        progress: Progress = True,
        **options: object,
    ) -> Index:
        """Declares an index and builds it.

        Args:
            columns: The column to index, or several for an index of the kind `key` or `links`; a field of a struct with
                dots between its names: `place.city`. Those of `links` are subject, predicate and object, or subject and
                object; with them a second index is declared, which walks the links back.
            using: The kind of index: `bitmap`, `key`, `bloom_tree`, `summary` or `links`. `auto` chooses it and the
                encoding by a sample of the column, unless an option other than `files_per_segment` is given.
            name: A name for it; made from column and kind if there is none.
            include: Columns whose values an index of the kind `key` keeps beside the key, so that lookups of these
                read no data. They are flat columns, and none of the key or of the partitions.
            build: Whether to build it now. Otherwise `build` does, any time later.
            if_not_exists: Whether an index of that name is left as it is; otherwise it is an error.
            progress: As for `build`.
            **options: Options of the kind; an unknown one is an error.

        Returns:
            The index, with what it covers.

        Raises:
            AlreadyExistsError: There is an index of that name.
            NotFoundError: There is no such column.
            UnsupportedError: The kind cannot index the column's type.
            InvalidInputError: An option is unknown or its value is wrong.
        """
        wanted = _names(columns)
        texts = _option_texts(options)
        if included := _names(include):
            texts["include"] = _column_list(included)
        # An index is found by its name, if it was given one.
        before = {index.name for index in self.indexes} if name is None else set()
        created = self._inner.create_index(wanted, using, name, texts, if_not_exists)
        index = self._find_index(name, wanted, before if created else set())
        if not (build and created):
            return index
        self.build(progress=progress, index=index.name)
        return self._find_index(index.name, wanted, set())

    def _find_index(self, name: str | None, columns: Sequence[str], others: set[str]) -> Index:
        """The index of that name, or without a name the one on these columns that is not among the others."""
        # What is quoted is a matter of taste: "place".city is place.city.
        wanted = [column.replace('"', "") for column in columns]
        for index in self.indexes:
            mine = index.name not in others and [column.replace('"', "") for column in index.columns] == wanted
            if index.name == name or (name is None and mine):
                return index
        raise InvalidInputError(f"the index {name or columns} was dropped by someone else just now; create it again")

    def drop_index(self, name: str, *, if_exists: bool = False) -> bool:
        """Drops an index.

        Args:
            name: Its name.
            if_exists: Whether it is no error if there is none.

        Returns:
            Whether there was one.

        Raises:
            NotFoundError: There is no such index.
        """
        return self._inner.drop_index(name, if_exists)

    def build(
        self,
        memory: int | None = None,
        threads: int | None = None,
        progress: Progress = True,
        *,
        index: str | None = None,
        verify: float = 0.0,
        commit_every: float = 30.0,
        max_failures: int | None = None,
        merge: bool = True,
    ) -> BuildReport:
        """Builds whatever the indexes do not cover yet: new files, changed files, new indexes, segments that were lost.

        Finished segments are committed while it runs. Ctrl-C stops it in good order: what is finished is committed, and
        another build goes on with the rest. A data file that cannot be read is left out: `failed` of the report has it
        with the reason.

        Args:
            memory: Bytes that it may keep in memory before it writes parts to disk.
            threads: Threads that read and index; one per core by default.
            progress: Whether to draw a bar on stderr, or a function that is given the rows done and the rows in total.
            index: The only index to build.
            verify: How large a share of the segments is compared with the data first, as by `verify`, so that damaged
                ones are built again, and not only missing ones. 1 (or True) is all of them; less is another sample
                every day.
            commit_every: Seconds that finished segments wait for a commit. What is written and not committed if the
                process dies is taken over by the next build.
            max_failures: How many data files may fail. One more stops the build, with an error, once what is finished
                is committed. By default it goes on.
            merge: Whether segments of an index are merged afterwards if they are too many for their sizes.

        Returns:
            What was done.

        Raises:
            ConflictError: Others kept committing first; build again.
            InvalidInputError: A share that is none, or a time below 0.
            LakemarkIOError: The disk is full, the storage does not answer, or more files failed than may. What is
                finished is committed; another build goes on with the rest.
            NotFoundError: There is no such index.
        """
        care = {
            "verify": float(verify),
            "commit_every": commit_every,
            "max_failures": max_failures,
            "merge": bool(merge),
        }
        with shown("build", progress) as tell:
            return BuildReport.from_json(*self._inner.build(index, memory, threads, care, tell))

    def compact(
        self,
        memory: int | None = None,
        threads: int | None = None,
        progress: Progress = True,
        *,
        index: str | None = None,
        full: bool = False,
    ) -> CompactReport:
        """Merges the segments of indexes into few, so that a search in many files probes few.

        Every build of appended files adds a segment, and merges those that are too many. This merges all but those
        that are far larger than the rest, or have more than half of the files of a full one. The old segments stay
        until a `vacuum`, since queries may be reading them.

        Args:
            memory: Bytes that it may keep in memory.
            threads: Threads that read; one per core by default.
            progress: As for `build`.
            index: The only index to compact.
            full: Whether to merge these as well, up to `files_per_segment` files, however many bytes that writes.

        Returns:
            What was merged.

        Raises:
            CorruptError: A segment is damaged; `verify` names it.
            NotFoundError: There is no such index.
        """
        with shown("compact", progress) as tell:
            return CompactReport.from_json(*self._inner.compact(index, memory, threads, full, tell))

    def advise(self, queries: str | Sequence[str] | None = None) -> Advice:
        """Says which indexes to build, from statistics and a sample of the columns. Changes nothing.

        Args:
            queries: SQL queries that the indexes are to be for: a text with semicolons between them, or a list.
                Whatever name they give to the table, this one is meant. Without any, columns are ranked by
                what conditions of the usual shapes would save.

        Returns:
            The indexes to build with their predicted sizes, what each query would read with them, indexes that no query
            can use, layouts of the data that would help, and with their lines the queries that could not be planned.
        """
        text = None if queries is None else text_of(queries)
        return Advice.from_text(*self._inner.advise(text))

    def verify(self) -> VerifyReport:
        """Reads the indexed columns again and compares them with the indexes.

        Returns:
            What was found; it is true if nothing is damaged.
        """
        return VerifyReport.from_json(*self._inner.verify())

    def vacuum(
        self, *, dry_run: bool = False, older_than: timedelta = timedelta(days=7), originals: bool = False
    ) -> VacuumReport:
        """Removes old manifests, what only they name (segments, runs, logs, data files in the store), unfinished files.

        The data and everything that is in use stay, as does whatever was in use within the age. Versions of a folder
        whose manifests go are expired.

        Args:
            dry_run: Whether only to report what would be removed.
            older_than: The age; at least one hour.
            originals: Whether data files that `publish` took out of the folder go, too, once no version needs them.

        Returns:
            What was removed, or would be.

        Raises:
            InvalidInputError: The age is below one hour.
        """
        # A negative age is too young as well.
        seconds = max(0, int(older_than.total_seconds()))
        return VacuumReport.from_json(*self._inner.vacuum(seconds, dry_run, originals))

    def scan(
        self,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        use_index: bool = True,
    ) -> Rows:
        """Reads rows, and of the data only the pages where they are.

        Args:
            filter: A SQL condition, such as `"origin = 'JFK' AND distance > 1000"`. All rows without one.
            columns: The columns to read, in this order. All columns without any.
            limit: How many rows at most.
            use_index: Whether the indexes are used; the rows are the same without.

        Returns:
            The rows, in no particular order, as an Arrow C stream that is computed when it is read.

        Raises:
            InvalidInputError: The condition is not valid SQL, or names a column that is not there.
        """
        if isinstance(columns, str):
            raise InvalidInputError(f"columns must be a list of names: [{columns!r}]")
        return Rows(self._inner.scan(filter, None if columns is None else list(columns), limit, use_index))

    def lookup(
        self,
        keys: object,
        columns: Sequence[str] | None = None,
        *,
        on: str | Sequence[str] | None = None,
        use_index: bool = True,
    ) -> Rows:
        """Finds the rows of some keys, in an index of the kind `key` with one small read for each key.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"))
        >>> table.create_index("flight", using="key", progress=False).kind
        'key'
        >>> sorted(table.lookup([7, 8], columns=["flight"]).to_arrow()["flight"].to_pylist())
        [7, 8]

        Args:
            keys: One key, a sequence of keys, or an Arrow array. None equals nothing, and a key that the column's type
                cannot hold is in no row. Keys of several columns are a list of tuples in the order of the columns, of
                dictionaries, or an Arrow array of structs.
            columns: The columns to read, in this order. All columns without any.
            on: The column of the keys, or several; if none is named the one with an index of the kind `key`, or without
                any that of the kind `bloom_tree` or `summary`.
            use_index: Whether the indexes are used; the rows are the same without.

        Returns:
            All rows of these keys, in no particular order.

        Raises:
            NotFoundError: There is no such index, and no column is named.
            InvalidInputError: There are several, or the keys cannot be compared with the column.
        """
        if isinstance(columns, str):
            raise InvalidInputError(f"columns must be a list of names: [{columns!r}]")
        return Rows(
            self._inner.lookup(
                _arrow.key_array(keys),
                [on] if isinstance(on, str) else list(on or ()),
                None if columns is None else list(columns),
                use_index,
            )
        )

    def links(self, *columns: str, memory: int | None = None) -> Links:
        """Walks over the links that rows of an edge table are.

        >>> import lakemark
        >>> links = lakemark.Table(getfixture("terms")).links("s", "p", "o")
        >>> links.out("dog", via="is_a").to_arrow()["node"].to_pylist()
        ['mammal']

        Args:
            *columns: Subject, predicate and object, or subject and object. Without any they are those of the table's
                index of the kind `links`.
            memory: Bytes that links without an index may take, and as many that each walk may take for what it has
                seen; a quarter of the machine's memory if no number is given.

        Returns:
            What finds neighbours, what is reached, and paths. An index of the kind `links` over the columns makes that
            fast; see docs/links.md.

        Raises:
            NotFoundError: No columns are named, and there is no such index.
            InvalidInputError: No columns are named, and there are several.
        """
        named = list(columns) or self._link_columns()
        return Links(self._inner.links(named, memory), tuple(named))

    def _link_columns(self) -> list[str]:
        """The columns of the only index of the kind `links`."""
        over = {index.name: list(index.columns) for index in self.indexes if index.kind == "links"}
        # The index that walks the same links back is named after the first.
        forward = [columns for name, columns in over.items() if name.removesuffix("_back") not in over.keys() - {name}]
        if not forward:
            raise NotFoundError(
                'the table has no index of the kind links; create one, or name columns: links("s", "p", "o")'
            )
        if len(forward) > 1:
            shown = " and ".join(f"({', '.join(columns)})" for columns in forward)
            raise InvalidInputError(f"there are links over {shown}; name the columns that are meant")
        return forward[0]

    def count(self, filter: str | None = None, *, use_index: bool = True, selection_cache: bool = True) -> int:
        """Counts rows, from the index alone where it is exact.

        Args:
            filter: A SQL condition; all rows without one.
            use_index: Whether the indexes are used; the number is the same without.
            selection_cache: Whether rows that the indexes found before may be taken from memory.

        Returns:
            How many rows there are for which it is true.
        """
        return self._inner.count(filter, use_index, selection_cache)

    def group_count(self, columns: str | Sequence[str], filter: str | None = None, *, use_index: bool = True) -> Rows:
        """Counts the rows of each value of a column, from the index alone where they know every row.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"))
        >>> table.create_index("origin", using="bitmap", progress=False).name
        'origin_bitmap'
        >>> counts = table.group_count("origin").to_arrow()
        >>> sum(counts["count"].to_pylist()) == table.count()
        True

        Args:
            columns: The column, or columns whose combinations of values are counted.
            filter: A SQL condition; all rows without one.
            use_index: Whether the indexes are used; the rows are the same without.

        Returns:
            The columns and `count`, in no order. NULL is a value of its own.

        Raises:
            NotFoundError: There is no such column.
            InvalidInputError: There is no column at all, or the condition is not valid SQL.
        """
        wanted = _names(columns)
        return Rows(self._inner.group_count(wanted, filter, use_index))

    def min_max(self, column: str, filter: str | None = None, *, use_index: bool = True) -> Rows:
        """Finds the least and the greatest value of a column, from the index alone where they know every row.

        Args:
            column: The column.
            filter: A SQL condition; all rows without one.
            use_index: Whether the indexes are used; the values are the same without.

        Returns:
            One row with `min` and `max`, which are NULL if no row has a value.

        Raises:
            NotFoundError: There is no such column.
        """
        return Rows(self._inner.min_max(column, filter, use_index))

    def sum_mean(self, column: str, filter: str | None = None, *, use_index: bool = True) -> Rows:
        """Sums a column and finds its mean, for integers and decimals from the index alone where they know every row.

        Args:
            column: The column, of a type that can be summed.
            filter: A SQL condition; all rows without one.
            use_index: Whether the indexes are used; the numbers are the same without.

        Returns:
            One row with `sum` and `mean`, which are NULL if no row has a value.

        Raises:
            NotFoundError: There is no such column.
            InvalidInputError: The column cannot be summed.
        """
        return Rows(self._inner.sum_mean(column, filter, use_index))

    def count_distinct(self, column: str, filter: str | None = None, *, use_index: bool = True) -> int:
        """Counts the different values of a column, from the index alone where they know every row.

        Args:
            column: The column.
            filter: A SQL condition; all rows without one.
            use_index: Whether the indexes are used; the number is the same without.

        Returns:
            How many values there are; NULL is none.

        Raises:
            NotFoundError: There is no such column.
        """
        return self._inner.count_distinct(column, filter, use_index)

    def explain(
        self, filter: str | None = None, *, count: bool = False, use_index: bool = True, selection_cache: bool = True
    ) -> ExplainReport:
        """Reports what the indexes say about a condition, and what would be left to read.

        Args:
            filter: A SQL condition.
            count: Whether to report on `count(filter)`, which needs less of the indexes than a scan does.
            use_index: Whether the indexes are used.
            selection_cache: Whether rows that the indexes found before may be taken from memory, which reads nothing.

        Returns:
            A report: text by `str()`, values by `to_dict()`, a picture in a notebook.
        """
        return ExplainReport.from_text(*self._inner.explain(filter, count, use_index, selection_cache))

    def __datafusion_table_provider__(self, session: object) -> object:
        return self._inner.__datafusion_table_provider__(session)


def _names(columns: str | Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _column_list(names: Sequence[str]) -> str:
    """Names as an option has them: with commas between, those quoted that could be read otherwise."""

    def shown(name: str) -> str:
        is_plain = name != "" and name.strip() == name and not {",", '"'} & set(name)
        return name if is_plain else '"' + name.replace('"', '""') + '"'

    return ",".join(shown(name) for name in names)


def _option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options are text, written as SQL writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}

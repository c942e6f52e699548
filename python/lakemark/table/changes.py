"""Changes of the rows of a table by key, and how they get into its data files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lakemark import _arrow
from lakemark._progress import Progress, shown
from lakemark.exceptions import InvalidInputError
from lakemark.reports import MigrateReport, PublishReport, Written
from lakemark.table.handle import Handle, names_of, option_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemark._internal import Operation

__all__ = ["Changes"]


class Changes(Handle):
    """Changes by key."""

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
            return self._inner.declare_key(names_of(columns), option_texts(options), tell)

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

"""Indexes of a table: made, built, merged, compared with the data, cleared away."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from lakemark._progress import Progress, shown
from lakemark.advice import Advice, text_of
from lakemark.exceptions import InvalidInputError
from lakemark.reports import BuildReport, CompactReport, HealthReport, Index, IndexKind, VacuumReport, VerifyReport
from lakemark.table.handle import Handle, column_list, names_of, option_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Upkeep"]


class Upkeep(Handle):
    """Indexes and their upkeep."""

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
        wanted = names_of(columns)
        texts = option_texts(options)
        if included := names_of(include):
            texts["include"] = column_list(included)
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

    def doctor(self) -> HealthReport:
        """Looks at everything that goes wrong with tables, as `lakemark doctor` does. Changes nothing.

        >>> import lakemark
        >>> table = lakemark.Table(getfixture("flights"))
        >>> report = table.doctor()
        >>> bool(report), [problem.name for problem in report.problems]
        (True, ['no_index'])

        Returns:
            What was found, each with what to do; it is true if nothing asks for somebody.
        """
        return HealthReport.from_json(*self._inner.doctor())

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

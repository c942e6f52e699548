"""Queries of a table: rows, counts, aggregates, and reports on conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemark import _arrow
from lakemark.exceptions import InvalidInputError, NotFoundError
from lakemark.links import Links
from lakemark.reports import ExplainReport
from lakemark.rows import Rows
from lakemark.table.handle import Handle, names_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Queries"]


class Queries(Handle):
    """Queries without a statement around them."""

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
        wanted = names_of(columns)
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

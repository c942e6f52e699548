"""Tables as datasets of pyarrow, which DuckDB, Polars, pandas and others read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import fs

from lakemark.engines.arrow_expressions import condition_of, roots_of
from lakemark.engines.conditions import Condition
from lakemark.exceptions import InvalidInputError, SchemaMismatchError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakemark.table import Table

__all__ = ["TableDataset"]

# Read by whoever goes past the methods of a dataset into pyarrow's own code, whose message has this text.
_NO_FILE = "/this is a table of Lakemark, which only the methods of its dataset read"


class TableDataset(pads.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of a table, as a dataset: conditions and columns are handed down to the indexes.

    Its columns are those of the table when it was made. Each scan reads the rows that the table has then, in no order.

    >>> import lakemark, pyarrow.compute as pc
    >>> dataset = lakemark.Table(getfixture("flights")).to_pyarrow_dataset()
    >>> dataset.count_rows(filter=pc.field("origin") == "JFK")
    10
    >>> dataset.to_table(columns=["flight"], filter=pc.field("distance") > 2800).to_pydict()
    {'flight': [29]}

    Args:
        table: The table.
        use_index: Whether the indexes are used; the rows are the same without.
        only: A condition that all rows satisfy.
    """

    def __init__(self, table: Table, *, use_index: bool = True, only: pc.Expression | None = None) -> None:
        self._table = table
        self._use_index = use_index
        self._only = only
        self._columns = _without_views(pa.schema(table.scan().schema))
        # Parts of pyarrow read datasets past their methods. They shall find a dataset, and neither rows nor a crash.
        form, disk = pads.ParquetFileFormat(), fs.LocalFileSystem()
        no_file = pads.FileSystemDataset([form.make_fragment(_NO_FILE, disk)], self._columns, form, disk)
        super().__init__(self._columns, [no_file])

    def __repr__(self) -> str:
        return f"lakemark.engines.dataset.TableDataset({self._table!r})"

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError("a dataset of Lakemark cannot be pickled: hand over the path, and open the table there")

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._columns

    @property
    def partition_expression(self) -> pc.Expression:
        """What is true for every row, as far as it can be told without reading."""
        return pc.scalar(True) if self._only is None else self._only

    @property
    def children(self) -> list[pads.Dataset]:
        """The datasets that this one is made of: none."""
        return []

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,  # noqa: ANN401 - pyarrow's own, which it checks
    ) -> pads.Scanner:
        """Makes a scanner, which can be used once.

        Args:
            columns: The columns to read, in this order, or expressions by the names that they are to have.
            filter: The condition that rows satisfy.
            **options: As for every dataset of pyarrow, such as `batch_size`.

        Returns:
            The scanner.

        Raises:
            SchemaMismatchError: The columns of the table have changed.
        """
        wanted = self._wanted(filter)
        found = self._condition(wanted)
        reader = _cut(self._read(found, self._needed(columns, wanted), None), options.get("batch_size"))
        return pads.Scanner.from_batches(reader, columns=_listed(columns), filter=wanted, **options)

    def to_table(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,  # noqa: ANN401
    ) -> pa.Table:
        """Reads the rows into memory; arguments are those of `scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Iterator[pa.RecordBatch]:
        """Reads the rows batch by batch; arguments are those of `scanner`."""
        batches: Iterator[pa.RecordBatch] = self.scanner(columns, filter, **options).to_batches()
        return batches

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:  # noqa: ANN401
        """Counts the rows, from the indexes alone where they know the condition as pyarrow evaluates it."""
        wanted = self._wanted(filter)
        found = self._condition(wanted)
        if found.is_exact:
            return self._table.count(found.text, use_index=self._use_index)
        return int(self.scanner(filter=filter, **options).count_rows())

    def head(
        self,
        num_rows: int,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,  # noqa: ANN401
    ) -> pa.Table:
        """Reads so many rows at most, whichever are found first; further arguments are those of `scanner`."""
        if num_rows < 0:
            raise InvalidInputError(f"num_rows is {num_rows}; give a number of rows, 0 or more")
        wanted = self._wanted(filter)
        found = self._condition(wanted)
        reader = self._read(found, self._needed(columns, wanted), num_rows if found.is_exact else None)
        scanner = pads.Scanner.from_batches(reader, columns=_listed(columns), filter=wanted, **options)
        return scanner.head(num_rows)

    def filter(self, expression: pc.Expression) -> TableDataset:
        """A dataset of the rows that satisfy a condition, besides those that this one has."""
        return TableDataset(self._table, use_index=self._use_index, only=self._wanted(expression))

    def take(self, *_: object, **__: object) -> NoReturn:
        """Is refused, since rows come in no order."""
        raise UnsupportedError("rows of a table come in no order, so they have no numbers: give a filter")

    def get_fragments(self, *_: object, **__: object) -> NoReturn:
        """Is refused, since rows of a fragment would be neither indexed nor updated."""
        raise UnsupportedError("a table of Lakemark has no fragments: use scanner, to_table or to_batches")

    def replace_schema(self, *_: object, **__: object) -> NoReturn:
        """Is refused: the columns are those of the table."""
        raise UnsupportedError("the columns of a table cannot be replaced here: give columns to scanner or to_table")

    def join(self, *_: object, **__: object) -> NoReturn:
        """Is refused, since pyarrow joins datasets past their conditions."""
        raise UnsupportedError("read what is to be joined by to_table first, with a filter; or join in SQL")

    def join_asof(self, *_: object, **__: object) -> NoReturn:
        """Is refused, as `join` is."""
        self.join()

    def sort_by(self, *_: object, **__: object) -> NoReturn:
        """Is refused, since pyarrow sorts datasets past their conditions."""
        raise UnsupportedError("read what is to be sorted by to_table first, with a filter; or sort in SQL")

    def _wanted(self, filter: pc.Expression | None) -> pc.Expression | None:
        if filter is not None and not isinstance(filter, pc.Expression):
            raise InvalidInputError(f"filter is {filter!r}; give an expression of pyarrow, such as pc.field('x') == 1")
        if filter is None or self._only is None:
            return self._only if filter is None else filter
        return self._only & filter

    def _condition(self, wanted: pc.Expression | None) -> Condition:
        return Condition(None, is_exact=True) if wanted is None else condition_of(wanted, self._columns)

    def _needed(
        self, columns: Sequence[str] | Mapping[str, pc.Expression] | None, wanted: pc.Expression | None
    ) -> list[str]:
        """The columns that a scan has to read for some columns, or expressions, and a condition."""
        names: list[str] = self._columns.names
        if columns is None:
            return names
        needed = set[str]() if isinstance(columns, Mapping) else set(columns)
        computed = columns.values() if isinstance(columns, Mapping) else ()
        for expression in (*computed, *(() if wanted is None else (wanted,))):
            roots = roots_of(expression)
            if roots is None:
                return names
            needed |= roots
        # Without any column rows could not be counted; pyarrow says what is wrong with a name that is none.
        return [name for name in names if name in needed] or names[:1]

    def _read(self, condition: Condition, columns: list[str], limit: int | None) -> pa.RecordBatchReader:
        rows = self._table.scan(condition.text, columns=columns, limit=limit, use_index=self._use_index)
        reader = pa.RecordBatchReader.from_stream(rows)
        found = _without_views(reader.schema)
        if found.types != [self._columns.field(name).type for name in columns]:
            raise SchemaMismatchError(
                f"the columns of {self._table.location} have changed since the dataset was made: "
                "call to_pyarrow_dataset again"
            )
        return reader if found.types == reader.schema.types else reader.cast(found)


def _cut(reader: pa.RecordBatchReader, most: int | None) -> pa.RecordBatchReader:
    """The rows in batches of so many at most: pyarrow takes the batches of a reader as they are."""
    if most is None or most < 1:
        return reader
    pieces = (batch.slice(at, most) for batch in reader for at in range(0, batch.num_rows, most))
    return pa.RecordBatchReader.from_batches(reader.schema, pieces)


def _without_views(schema: pa.Schema) -> pa.Schema:
    """The columns with texts and bytes in one piece: pyarrow cannot filter by what are views."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(plain.get(field.type, field.type)) for field in schema], schema.metadata)


def _listed(
    columns: Sequence[str] | Mapping[str, pc.Expression] | None,
) -> list[str] | dict[str, pc.Expression] | None:
    if isinstance(columns, str):
        raise InvalidInputError(f"columns must be a list of names: [{columns!r}]")
    if columns is None:
        return None
    return dict(columns) if isinstance(columns, Mapping) else list(columns)

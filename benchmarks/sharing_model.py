"""When one decode for several queries is cheaper than one for each: the prediction of shared scans.

A piece is a row group. Each query has a row set in it, of the columns that it reads:

```text
private   sum over the queries of read(rows, columns)
shared    read(union of rows, union of columns) + sum over the queries of select(union, rows)
```

A piece is shared if private > 1.1 x shared + 20 µs; else each query reads it alone, so that nothing is lost.
Costs are nanoseconds of one core. Reading costs what `rust/table/src/probe/reading.rs` says, with its constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

# Constants of `probe/reading.rs`.
PAGE_ROWS = 20_000
UNPACK_SHARE = 0.7
STEP, STEP_ROWS = 110.0, 64
MASK_ROW, MASK_RUN = 4.0, 35.0
PLAN_RUN = 50.0
TEST = 1.5

# To share has to win by this much.
SHARE_FACTOR, SHARE_NANOSECONDS = 1.1, 20_000.0
# To take rows out of a batch that others share, for a row and for a row of a column: what Arrow's filter takes of
# batches of 8,192 rows (0.4 to 0.8 a value and 0.6 to 3 a row, 2% to 98% of the rows).
SELECT_ROW, SELECT_VALUE = 1.0, 0.6


@dataclass(frozen=True)
class RowSet:
    """Rows of a piece.

    Attributes:
        rows: Rows of the piece.
        selected: Rows among them that are read.
        runs: Stretches that these lie in.
        touched: Rows of the pages that have one of them.
    """

    rows: int
    selected: int
    runs: int
    touched: int

    @classmethod
    def of(cls, mask: Mask) -> RowSet:
        """The rows where the mask is true."""
        selected = int(np.count_nonzero(mask))
        if not selected:
            return cls(len(mask), 0, 0, 0)
        runs = int(mask[0]) + int(np.count_nonzero(mask[1:] & ~mask[:-1]))
        pages = range(0, len(mask), PAGE_ROWS)
        touched = sum(min(PAGE_ROWS, len(mask) - page) for page in pages if mask[page : page + PAGE_ROWS].any())
        return cls(len(mask), selected, runs, touched)


@dataclass(frozen=True)
class Wanted:
    """What a query wants of a piece: rows, and columns with the nanoseconds to decode a value."""

    mask: Mask
    columns: Mapping[str, float]


@dataclass(frozen=True)
class Costs:
    """What a piece, or several of them, cost.

    Attributes:
        private: If each query reads alone.
        shared: If the cheaper way is taken, piece by piece.
        selected: Rows that the queries want, counted for each of them.
        union: Rows that one of them wants.
        rows: Rows of the pieces.
        pieces: How many pieces.
        pieces_shared: Pieces among them that are shared.
    """

    private: float = 0.0
    shared: float = 0.0
    selected: int = 0
    union: int = 0
    rows: int = 0
    pieces: int = 0
    pieces_shared: int = 0

    def plus(self, other: Costs) -> Costs:
        """Both."""
        return Costs(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def bound(self) -> float:
        """How many times as much reading alone costs."""
        return self.private / self.shared if self.shared else 1.0


def read(rows: RowSet, columns: Mapping[str, float]) -> float:
    """To read rows of some columns: by stepping over the others, by masking them, or all rows with a test."""
    if not rows.selected:
        return 0.0
    decode, count = sum(columns.values()), len(columns)
    between = rows.touched - rows.selected
    if rows.runs * STEP_ROWS <= rows.touched:
        cost = (rows.selected + between * UNPACK_SHARE) * decode + rows.runs * count * STEP
    else:
        cost = rows.touched * (decode + count * MASK_ROW) + rows.runs * MASK_RUN
    tested = 0.0 if rows.selected == rows.rows else TEST
    return min(cost + rows.runs * PLAN_RUN, rows.rows * (decode + tested))


def select(union: RowSet, rows: RowSet, columns: Mapping[str, float]) -> float:
    """To take a query's rows out of those that are decoded for all; whole batches cost nothing."""
    if not rows.selected or rows.selected == union.selected:
        return 0.0
    return union.selected * (SELECT_ROW + SELECT_VALUE * len(columns))


def piece(queries: Sequence[Wanted]) -> Costs:
    """What queries cost of a piece, alone and in the cheaper way."""
    sets = [(RowSet.of(query.mask), query.columns) for query in queries]
    private = sum(read(rows, columns) for rows, columns in sets)
    union = RowSet.of(np.logical_or.reduce([query.mask for query in queries]))
    every = {column: cost for query in queries if query.mask.any() for column, cost in query.columns.items()}
    shared = read(union, every) + sum(select(union, rows, columns) for rows, columns in sets)
    wins = private > SHARE_FACTOR * shared + SHARE_NANOSECONDS
    selected = sum(rows.selected for rows, _ in sets)
    cheaper = shared if wins else private
    return Costs(private, cheaper, selected, union.selected, union.rows, 1, int(wins))


@dataclass(frozen=True)
class Work:
    """Seconds of CPU of a query, or of several."""

    total: float = 0.0
    scans: float = 0.0
    joins: float = 0.0

    def plus(self, other: Work) -> Work:
        """Both."""
        return Work(self.total + other.total, self.scans + other.scans, self.joins + other.joins)


def predicted(asked: Work, distinct: Work, of_fact: Sequence[tuple[Work, Costs]]) -> dict[str, float]:
    """The CPU that each level leaves of what unshared queries take, at least.

    Args:
        asked: What all queries take.
        distinct: What those that are different take.
        of_fact: For each fact what the different queries over it take, and the pieces of its scans.

    Returns:
        By level. Equal queries run once; of scans the shared part is left; star joins also join each row of the union
        once in place of once for each query that wants it.
    """
    scans = sum(work.scans * (1 - 1 / costs.bound) for work, costs in of_fact)
    joins = sum(work.joins * (1 - min(1.0, costs.union / max(costs.selected, 1))) for work, costs in of_fact)
    return {
        "plans": distinct.total / asked.total,
        "pages": (distinct.total - scans) / asked.total,
        "stars": (distinct.total - scans - joins) / asked.total,
    }

"""Answers of engines as multisets of rows, and whether two of them are the same but for what floats lose."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

DIGITS = 9
JUDGED_TOLERANCE = 1e-6
SORTED_DIGITS = 3
# Smaller whole numbers, such as years, are the same in every engine.
WHOLE = 1e6


def rows_of(answer: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows in no order, with numbers that are the same in every engine."""
    return Counter(tuple(rounded(value) for value in row.values()) for row in answer.to_pylist())


def rounded(value: object) -> object:
    """Decimals and floats to nine digits."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and math.isfinite(value) and value:
        return float(f"{value:.{DIGITS}g}")
    return value


def plain_rows(rows: Counter[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as JSON has them: numbers are floats, and what is neither number nor text becomes text."""
    return [
        [value if isinstance(value, (float, str, type(None))) else str(value) for value in as_floats(row)]
        for row in rows.elements()
    ]


def is_close(rows: Counter[tuple[Any, ...]], others: Counter[tuple[Any, ...]]) -> bool:
    """Whether the rows are the same but for what floats lose."""
    mine, theirs = (sorted(map(as_floats, each.elements()), key=coarse) for each in (rows, others))
    return len(mine) == len(theirs) and all(
        all(map(is_close_value, one, other)) for one, other in zip(mine, theirs, strict=True)
    )


def as_floats(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with all numbers as floats of nine digits: an integer here may be a decimal there."""
    return tuple(rounded(float(value)) if isinstance(value, (int, float)) else value for value in row)


def is_close_value(one: object, other: object) -> bool:
    """Whether two values are the same but for what floats lose."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=JUDGED_TOLERANCE, abs_tol=JUDGED_TOLERANCE)
    return one == other


def coarse(row: tuple[Any, ...]) -> tuple[str, ...]:
    """A row as what it is sorted by, which the last digits of floats do not change."""

    def text(value: object) -> str:
        if not isinstance(value, float) or (value.is_integer() and abs(value) < WHOLE):
            return str(value)
        return f"{value:.{SORTED_DIGITS}g}"

    return tuple(map(text, row))

"""Comparisons of a column with constants, as SQL in the column's own type.

Numbers, days and moments are compared as exact fractions, whatever types column and constant have. A constant that the
column's type cannot hold becomes the nearest one that it can, as a bound, or a condition that no row passes.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemark.engines.conditions import ANYTHING, NOTHING, Condition, all_of, any_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SWAPPED", "UNLESS", "Column", "compare", "is_one_of", "null", "starts_with", "truth"]

UNLESS = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""The operator that is true where another one is false."""

SWAPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator for operands that changed places."""

# More constants take longer to plan with than they save.
_MOST_LISTED = 4096

# Engines may compare whole numbers with floats as floats, where larger ones are rounded.
_SAFE = 2**24

_INT32 = 32
_INT64 = 64
_SINGLE = 32

# The smallest number above zero of 32 bits: floats between it and its opposite are zeros and nearly so.
_TINY = 2.0**-149

_UNITS = {"s": ("Second", 1), "ms": ("Millisecond", 10**3), "us": ("Microsecond", 10**6), "ns": ("Nanosecond", 10**9)}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of one.

    Attributes:
        text: Its name in SQL.
        type: Its type; dictionaries are of the type of their values.
        is_dictionary: Whether its values are kept in a dictionary. Engines do not agree on their order.
    """

    text: str
    type: pa.DataType
    is_dictionary: bool = False

    @classmethod
    def of(cls, schema: pa.Schema, path: tuple[str, ...]) -> Column | None:
        r"""A column by its name, or a field of structs by the names on the way; none if there is no such one.

        >>> Column.of(pa.schema({"at": pa.struct({"x": pa.int8()})}), ("at", "x")).text
        '"at"[\'x\']'
        """
        if not path or len(schema.get_all_field_indices(path[0])) != 1:
            return None
        kind, text = schema.field(path[0]).type, quoted(path[0])
        for name in path[1:]:
            if not pa.types.is_struct(kind) or len(kind.get_all_field_indices(name)) != 1:
                return None
            kind, text = kind.field(name).type, f"{text}[{_text(name)}]"
        if pa.types.is_dictionary(kind):
            return cls(text, kind.value_type, is_dictionary=True)
        return cls(text, kind)


def compare(column: Column, operator: str, constant: pa.Scalar, *, nan: bool) -> Condition:
    """The rows where the column compares so with the constant.

    Args:
        column: The column, on the left.
        operator: One of `UNLESS`.
        constant: The constant.
        nan: Whether the engine may take it to be true for NaN.
    """
    if not constant.is_valid:
        return NOTHING
    kind = column.type
    if _is_whole(kind):
        place = _place(constant, kind)
        return ANYTHING if place is None else _compare_whole(column, operator, place)
    if pa.types.is_floating(kind):
        return _compare_float(column, operator, constant, nan=nan)
    if pa.types.is_boolean(kind) and pa.types.is_boolean(constant.type) and operator in ("=", "<>"):
        return truth(column, is_true=constant.as_py() == (operator == "="))
    text = _bytes_or_text(kind, constant)
    if text is None or (column.is_dictionary and operator not in ("=", "<>")):
        return ANYTHING
    return Condition(f"{column.text} {operator} {text}", is_exact=True)


def is_one_of(column: Column, constants: Iterable[pa.Scalar], *, is_in: bool) -> Condition:
    """The rows where the column is one of the constants, or is none of them; constants that are NULL are left out."""
    listed = [constant for constant in constants if constant.is_valid]
    if len(listed) > _MOST_LISTED or pa.types.is_boolean(column.type):
        return ANYTHING
    if pa.types.is_floating(column.type):
        parts = [compare(column, "=" if is_in else "<>", constant, nan=not is_in) for constant in listed]
        return (any_of(parts) if is_in else all_of(parts)) if parts else (NOTHING if is_in else ANYTHING)
    texts = []
    for constant in listed:
        if _is_whole(column.type):
            place = _place(constant, column.type)
            if place is None:
                return ANYTHING
            unit, low, high = _range(column.type)
            number = place / unit
            # What the type cannot hold equals nothing.
            if number.denominator == 1 and low <= number <= high:
                texts.append(_whole(column.type, int(number)))
        else:
            text = _bytes_or_text(column.type, constant)
            if text is None:
                return ANYTHING
            texts.append(text)
    if not texts:
        return NOTHING if is_in else null(column, is_null=False)
    return Condition(f"{column.text} {'' if is_in else 'NOT '}IN ({', '.join(texts)})", is_exact=True)


def null(column: Column, *, is_null: bool) -> Condition:
    """The rows where the column is NULL, or is not."""
    return Condition(f"{column.text} IS {'' if is_null else 'NOT '}NULL", is_exact=True)


def truth(column: Column, *, is_true: bool) -> Condition:
    """The rows where a column of truth values is true, or false."""
    if not pa.types.is_boolean(column.type):
        return ANYTHING
    return Condition(f"{column.text} = {'true' if is_true else 'false'}", is_exact=True)


def starts_with(column: Column, constant: pa.Scalar, *, starts: bool) -> Condition:
    """The rows where a text starts with the constant, or does not."""
    if not constant.is_valid:
        return NOTHING
    text = _bytes_or_text(column.type, constant)
    if text is None or not _is_text(column.type):
        return ANYTHING
    return Condition(f"{'' if starts else 'NOT '}starts_with({column.text}, {text})", is_exact=True)


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    is_variable = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(is_variable or pa.types.is_fixed_size_binary(kind))


def _is_whole(kind: pa.DataType) -> bool:
    """Whether values are whole numbers of some unit."""
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return bool(is_number or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def _bytes_or_text(kind: pa.DataType, constant: pa.Scalar) -> str | None:
    if _is_text(kind) and _is_text(constant.type):
        return _text(constant.as_py())
    if _is_binary(kind) and _is_binary(constant.type):
        return f"X'{constant.as_py().hex()}'"
    return None


def _place(constant: pa.Scalar, kind: pa.DataType) -> Fraction | None:
    """The constant as a number, or in seconds, if it can be compared with values of the type without rounding."""
    given = constant.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        if pa.types.is_integer(given) or pa.types.is_decimal(given):
            return Fraction(constant.as_py())
        if pa.types.is_floating(given) and pa.types.is_integer(kind):
            number = float(constant.as_py())
            return Fraction(number) if abs(number) <= _SAFE else None
        return None
    if _family(given) is None or _family(given) != _family(kind):
        return None
    whole = constant.cast(pa.int32() if given.bit_width == _INT32 else pa.int64()).as_py()
    return Fraction(whole) * _range(given)[0]


def _family(kind: pa.DataType) -> str | None:
    """Types of one family lie on one line."""
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_date(kind):
        return "moment"
    if pa.types.is_timestamp(kind):
        return "moment" if kind.tz is None else "instant"
    return None


def _range(kind: pa.DataType) -> tuple[Fraction, int, int]:
    """What one step of a type is, and its least and greatest number of steps."""
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return Fraction(10) ** -kind.scale, -most, most
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return Fraction(1), 0, 2**bits - 1
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if pa.types.is_integer(kind):
        return Fraction(1), low, high
    if pa.types.is_date(kind):
        return (Fraction(86_400) if bits == _INT32 else Fraction(1, 1000)), low, high
    return Fraction(1, _UNITS[kind.unit][1]), low, high


def _whole(kind: pa.DataType, steps: int) -> str:
    """So many steps of the type."""
    if pa.types.is_integer(kind):
        return str(steps)
    if pa.types.is_decimal(kind):
        digits = str(abs(steps)).rjust(max(kind.scale, 0) + 1, "0")
        point = len(digits) - max(kind.scale, 0)
        number = f"{'-' if steps < 0 else ''}{digits[:point]}.{digits[point:]}".rstrip(".") + "0" * max(-kind.scale, 0)
        return f"arrow_cast('{number}', 'Decimal{kind.bit_width}({kind.precision}, {kind.scale})')"
    number = str(steps) if kind.bit_width == _INT64 else f"arrow_cast({steps}, 'Int32')"
    if pa.types.is_date(kind):
        return f"arrow_cast({number}, 'Date{kind.bit_width}')"
    unit = _UNITS[kind.unit][0]
    if pa.types.is_time(kind):
        return f"arrow_cast({number}, 'Time{kind.bit_width}({unit})')"
    zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
    return f"arrow_cast({number}, {_text(f'Timestamp({unit}, {zone})')})"


def _compare_whole(column: Column, operator: str, place: Fraction) -> Condition:
    unit, low, high = _range(column.type)
    number = place / unit
    is_held = number.denominator == 1 and low <= number <= high
    if is_held:
        return Condition(f"{column.text} {operator} {_whole(column.type, int(number))}", is_exact=True)
    if operator == "=":
        return NOTHING
    if operator == "<>":
        return null(column, is_null=False)
    is_below = operator in ("<", "<=")
    bound = math.floor(number) if is_below else math.ceil(number)
    if (bound < low) if is_below else (bound > high):
        return NOTHING
    if (bound >= high) if is_below else (bound <= low):
        return null(column, is_null=False)
    return Condition(f"{column.text} {'<=' if is_below else '>='} {_whole(column.type, bound)}", is_exact=True)


def _compare_float(column: Column, operator: str, constant: pa.Scalar, *, nan: bool) -> Condition:
    """Never exact: engines do not agree on NaN and on zeros with a sign.

    In our scan NaN equals itself and is greater than all numbers, or less if its sign is set; -0.0 is less than 0.0.
    """
    number = _float(constant, column.type)
    if number is None:
        return ANYTHING
    if number == 0:
        if operator == "=":
            return all_of([_float_leaf(column, ">=", -_TINY), _float_leaf(column, "<=", _TINY)])
        if operator != "<>":
            number, operator = (_TINY, "<=") if operator in ("<", "<=") else (-_TINY, ">=")
        else:
            # Some engines take -0.0 for another number than 0.0, and rows with either would have to be kept.
            return ANYTHING
    found = _float_leaf(column, operator, number)
    if not nan or operator in ("=", "<>"):
        return found
    beyond = ("<", -math.inf) if operator in (">", ">=") else (">", math.inf)
    return any_of([found, _float_leaf(column, *beyond)])


def _float_leaf(column: Column, operator: str, number: float) -> Condition:
    kind = f"'Float{column.type.bit_width}'"
    text = ("'Infinity'" if number > 0 else "'-Infinity'") if math.isinf(number) else repr(number)
    return Condition(f"{column.text} {operator} arrow_cast({text}, {kind})", is_exact=False)


def _float(constant: pa.Scalar, kind: pa.DataType) -> float | None:
    """The constant as a number that a column of floats can hold; none if it is not, or NaN."""
    given = constant.type
    if not (pa.types.is_floating(given) or (pa.types.is_integer(given) and abs(constant.as_py()) <= _SAFE)):
        return None
    number = float(constant.as_py())
    # Halves are compared by few engines as themselves.
    if math.isnan(number) or kind.bit_width not in (32, 64):
        return None
    if kind.bit_width == _SINGLE:
        try:
            (held,) = struct.unpack("f", struct.pack("f", number))
        except OverflowError:
            return None
        return number if held == number else None
    return number

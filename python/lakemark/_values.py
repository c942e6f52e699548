"""Python values as Arrow arrays that hold all of each value.

pyarrow takes the type of a column from some of its values and cuts others to it: the times of day among dates, the
nanoseconds of pandas, a zone. Whether a value fits its column of the table is found later, where the array is cast.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from operator import index
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MISFITS", "array"]

#: What `array` raises, and pyarrow in it. Its own errors are of these kinds, too.
MISFITS = (ValueError, TypeError, OverflowError, NotImplementedError)

_MIDNIGHT = dt.time()

#: Values that are numbers to Arrow: what they are called, and their types in Python and numpy.
_COUNTED = (
    ("dates or datetimes", dt.date, "datetime64"),
    ("timedeltas", dt.timedelta, "timedelta64"),
    ("times of day", dt.time, ""),
)


def array(given: Any) -> pa.Array:  # noqa: ANN401 - whatever callers have
    """The values of a column, a list or a series as one array.

    >>> import datetime as dt
    >>> str(array([dt.date(2024, 5, 5), dt.datetime(2024, 5, 5, 13)]).type)
    'timestamp[us]'
    """
    import pyarrow as pa

    if _is_of(type(given), "pandas"):
        return _of_pandas(given)
    if _is_of(type(given), "numpy") and hasattr(given, "dtype"):
        # Of masked values those that are masked are None.
        return _of_values(given.tolist()) if _is_object(given.dtype) else pa.array(given)
    if hasattr(given, "__arrow_c_array__"):
        return pa.array(given)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.chunked_array(given).combine_chunks()
    return _of_values(list(given))


def _is_of(kind: type, package: str) -> bool:
    """Whether a type is one of a package that need not be there."""
    return kind.__module__.partition(".")[0] == package


def _of_pandas(given: Any) -> pa.Array:  # noqa: ANN401 - the types are pandas' own
    import pyarrow as pa

    kind = given.dtype
    if str(kind).startswith(("period", "interval")):
        raise ValueError(f"{kind} has no type in Arrow; give timestamps, such as those of to_timestamp(), or texts")
    categories = getattr(kind, "categories", None)
    is_mixed = _is_object(getattr(categories, "dtype", kind)) and getattr(categories, "inferred_type", "") != "string"
    return _of_values(list(given), nan_is_null=True) if is_mixed else pa.array(given, from_pandas=True)


def _is_object(dtype: object) -> bool:
    return str(dtype) == "object"


def _of_values(values: list[Any], *, nan_is_null: bool = False) -> pa.Array:
    kinds = set(map(type, values)) - {type(None)}
    absent = {kind for kind in kinds if kind.__name__ in ("NaTType", "NAType") and _is_of(kind, "pandas")}
    if absent:
        values = [None if type(value) in absent else value for value in values]
        kinds -= absent
    if any(issubclass(kind, Mapping) for kind in kinds):
        return _of_structs(values, nan_is_null=nan_is_null)
    if any(issubclass(kind, list | tuple | set | frozenset) or _is_ndarray(kind) for kind in kinds):
        return _of_lists(values, kinds, nan_is_null=nan_is_null)
    return _of_leaves(values, kinds, nan_is_null=nan_is_null)


def _is_ndarray(kind: type) -> bool:
    return kind.__name__ == "ndarray" and _is_of(kind, "numpy")


def _is_null(value: object, *, nan_is_null: bool) -> bool:
    return value is None or (nan_is_null and isinstance(value, float | Decimal) and math.isnan(value))


def _of_structs(values: list[Any], *, nan_is_null: bool) -> pa.Array:
    import pyarrow as pa

    is_null = [_is_null(value, nan_is_null=nan_is_null) for value in values]
    names: dict[str, None] = {}
    for value, null in zip(values, is_null, strict=True):
        if null:
            continue
        if not isinstance(value, Mapping):
            raise TypeError(f"{value!r} stands beside dicts")
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise TypeError(f"{wrong[0]!r} is no name of a field; give a str")
        names.update(dict.fromkeys(value))
    rows = [{} if null else value for value, null in zip(values, is_null, strict=True)]
    if not names:
        return pa.array([None if null else {} for null in is_null], pa.struct([]))
    fields = [_of_values([row.get(name) for row in rows], nan_is_null=nan_is_null) for name in names]
    return pa.StructArray.from_arrays(fields, names=list(names), mask=pa.array(is_null))


def _of_lists(values: list[Any], kinds: set[type], *, nan_is_null: bool) -> pa.Array:
    import pyarrow as pa

    if all(map(_is_ndarray, kinds)):
        shapes = {(value.dtype, value.ndim) for value in values if value is not None}
        if len(shapes) == 1 and not any(_is_object(dtype) for dtype, _ in shapes):
            return pa.array(values)
    is_null = [_is_null(value, nan_is_null=nan_is_null) for value in values]
    flat: list[Any] = []
    offsets = [0]
    for value, null in zip(values, is_null, strict=True):
        if not null:
            if isinstance(value, str | bytes) or not isinstance(value, Iterable):
                raise TypeError(f"{value!r} stands beside lists")
            flat.extend(value)
        offsets.append(len(flat))
    items = _of_values(flat, nan_is_null=nan_is_null)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, mask=pa.array(is_null))


def _of_leaves(values: list[Any], kinds: set[type], *, nan_is_null: bool) -> pa.Array:
    import pyarrow as pa

    _check_company(values, kinds, nan_is_null=nan_is_null)
    of: pa.DataType | None = None
    if any(issubclass(kind, dt.datetime) for kind in kinds):
        values, of = _timestamps(values)
    elif any(issubclass(kind, dt.timedelta) for kind in kinds):
        of = pa.duration("ns" if any(getattr(value, "nanoseconds", 0) for value in values) else "us")
    elif any(issubclass(kind, dt.time) for kind in kinds):
        zoned = [value for value in values if getattr(value, "tzinfo", None) is not None]
        if zoned:
            raise ValueError(f"{zoned[0]!r} has a zone, which no column of times can have")
    elif int in kinds and Decimal in kinds:
        # pyarrow counts the digits of the decimals alone.
        values = [Decimal(value) if type(value) is int else value for value in values]
    elif len(kinds) > 1:
        # pyarrow takes half floats beside integers for integers.
        values = [float(value) if type(value).__name__ == "float16" else value for value in values]
    try:
        return pa.array(values, of, from_pandas=nan_is_null)
    except OverflowError:
        if bool in kinds or not all(hasattr(kind, "__index__") for kind in kinds):
            raise
        # Integers beyond 64 bits, which a decimal may hold.
        integers = [None if value is None else index(value) for value in values]
        return pa.array(integers, pa.decimal256(76, 0))


def _check_company(values: list[Any], kinds: set[type], *, nan_is_null: bool) -> None:
    """Refuses others beside values that are numbers to Arrow: pyarrow takes 7.9 for 7 days or 7 microseconds."""
    for name, of_python, of_numpy in _COUNTED:
        others = {
            kind
            for kind in kinds
            if not issubclass(kind, of_python) and not (kind.__name__ == of_numpy and _is_of(kind, "numpy"))
        }
        if len(others) == len(kinds):
            continue
        for value in values:
            if type(value) in others and not _is_null(value, nan_is_null=nan_is_null):
                raise TypeError(f"{value!r} stands beside {name}; make it one of them first")


def _timestamps(values: list[Any]) -> tuple[list[Any], pa.DataType]:
    """Dates and datetimes as datetimes, and the type that holds all of them."""
    import pyarrow as pa

    first: Any = None
    is_zoned = has_nanoseconds = False
    stamps: list[Any] = []
    for value in values:
        is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
        stamp = dt.datetime.combine(value, _MIDNIGHT) if is_day else value
        stamps.append(stamp)
        if _is_null(stamp, nan_is_null=True):
            continue
        # Those of numpy have no zone.
        has_zone = isinstance(stamp, dt.datetime) and stamp.utcoffset() is not None
        if first is None:
            first, is_zoned = stamp, has_zone
        if has_zone != is_zoned:
            raise ValueError(f"of {first} and {value} only one has a zone; give all of them one, or none")
        has_nanoseconds = has_nanoseconds or getattr(stamp, "nanosecond", 0) != 0
    zone = pa.infer_type([first]).tz if is_zoned else None
    return stamps, pa.timestamp("ns" if has_nanoseconds else "us", zone)

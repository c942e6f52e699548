"""Rows, keys and parameters on their way in: what callers have, as something that hands out Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakemark import _values
from lakemark.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lakemark.schema import Schema

__all__ = ["key_array", "key_rows", "parameters", "rows"]

_ACCEPTED = (
    "an Arrow stream or array (pyarrow, Polars, DuckDB, rows of Lakemark), a pandas.DataFrame, a dict of columns or a "
    "list of dicts"
)


def rows(given: object, schema: Callable[[], Schema], *, may_lack: bool) -> object:
    """Rows as an Arrow stream or array of structs.

    Args:
        given: What the caller has.
        schema: Gives the table's columns, for no rows at all.
        may_lack: Whether dicts may lack columns that others have; these are NULL then.
    """
    if (frame := _pandas_rows(given)) is not None:
        return frame
    if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        return given
    if isinstance(given, Mapping):
        return _of_columns(given)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInputError(f"{type(given).__name__} holds no rows; give {_ACCEPTED}")
    return _of_dicts(list(given), schema, may_lack=may_lack)


def key_rows(given: object, key: Callable[[], Sequence[str]], schema: Callable[[], Schema]) -> object:
    """Keys as an Arrow stream or array: of structs, or of values where the key has one column."""
    if isinstance(given, Mapping) or _has_columns(given):
        return rows(given, schema, may_lack=False)
    if not _is_pandas(given) and (hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")):
        return given
    listed: list[Any] = [given] if isinstance(given, str | bytes) or not isinstance(given, Iterable) else list(given)
    if not listed or isinstance(listed[0], Mapping):
        return rows(listed, schema, may_lack=False)
    names = key()
    if len(names) <= 1:
        return key_array(listed)
    if not all(isinstance(item, tuple | list) and len(item) == len(names) for item in listed):
        raise InvalidInputError(f"each key is a tuple ({', '.join(names)}); give a list of them")
    return _of_columns({name: [item[place] for item in listed] for place, name in enumerate(names)})


def key_array(keys: object) -> object:
    """The keys as an Arrow array."""
    if hasattr(keys, "__arrow_c_array__"):
        return keys
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        keys = [keys]
    try:
        if isinstance(keys, list | tuple) and any(isinstance(key, tuple) for key in keys):
            return _tuple_array(keys)
        return _values.array(keys)
    except _values.MISFITS as cause:
        raise InvalidInputError(f"the keys must be values of one type: {cause}") from cause


def _tuple_array(keys: Sequence[Any]) -> pa.Array:
    """Keys of several columns as structs, whose fields have names that no column has: places count."""
    import pyarrow as pa

    length = max(len(key) for key in keys if isinstance(key, tuple))
    if any(key is not None and not (isinstance(key, tuple) and len(key) == length) for key in keys):
        raise InvalidInputError(f"keys of several columns must be tuples of one length, such as all of {length} values")
    columns = [_values.array([None if key is None else key[place] for key in keys]) for place in range(length)]
    return pa.StructArray.from_arrays(columns, names=[f"\0{place}" for place in range(length)])


def parameters(given: object) -> pa.RecordBatch | None:
    """Parameters of a statement as a batch of one row, whose columns have their names or count from 1; none of none.

    >>> parameters([7, "x"]).to_pylist(), parameters({"day": None}).to_pylist(), parameters([])
    ([{'1': 7, '2': 'x'}], [{'day': None}], None)
    """
    import pyarrow as pa

    if isinstance(given, Mapping):
        named = dict(given)
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        named = {str(place): value for place, value in enumerate(given, start=1)}
    else:
        raise InvalidInputError(f"parameters are a list or a dict of values, not {given!r}; give [{given!r}]")
    if not named:
        return None
    return pa.RecordBatch.from_pydict({str(name): _parameter(name, value) for name, value in named.items()})


def _parameter(name: object, value: object) -> pa.Array:
    """The value as an array of one."""
    import pyarrow as pa

    try:
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, 1)
        # Integers beyond 64 bits are for columns that hold them.
        return pa.array([value]) if isinstance(value, int) else _values.array([value])
    except _values.MISFITS as cause:
        raise InvalidInputError(f"the parameter ${name} is no value that Arrow has a type for: {cause}") from cause


def _is_pandas(given: object) -> bool:
    return type(given).__module__.partition(".")[0] == "pandas"


def _has_columns(given: object) -> bool:
    return _is_pandas(given) and hasattr(given, "columns")


def _pandas_rows(given: object) -> pa.Table | None:
    """A data frame's columns, and its index if that has a name; row numbers are no data."""
    if not _has_columns(given):
        return None
    frame: Any = given
    columns = [(str(name), frame.iloc[:, place]) for place, name in enumerate(frame.columns)]
    if any(name is not None for name in frame.index.names):
        levels = enumerate(frame.index.names)
        columns += [
            (f"level {place} of the index" if name is None else str(name), frame.index.get_level_values(place))
            for place, name in levels
        ]
    return _table(columns)


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidInputError(f"{name!r} is no name of a column; give a str")
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidInputError(f"{name!r} has no list of values; to give a single row, put its dict into a list")
    return _table(columns.items())


def _table(columns: Iterable[tuple[str, Any]]) -> pa.Table:
    """Columns of one length. A name that is there twice is kept for the table to refuse."""
    import pyarrow as pa

    names, arrays = [], []
    for name, values in columns:
        names.append(name)
        try:
            arrays.append(_values.array(values))
        except _values.MISFITS as cause:
            raise InvalidInputError(
                f"the values of a column must be of one type each; those of {name}: {cause}"
            ) from cause
    try:
        return pa.Table.from_arrays(arrays, names=names)
    except pa.ArrowInvalid as cause:
        raise InvalidInputError(f"the columns must be equally long: {cause}") from cause


def _of_dicts(listed: list[Any], schema: Callable[[], Schema], *, may_lack: bool) -> pa.Table:
    import pyarrow as pa

    if not listed:
        return pa.schema(schema()).empty_table()
    names: dict[str, None] = {}
    for row, item in enumerate(listed):
        if not isinstance(item, Mapping):
            raise InvalidInputError(f"row {row} is {type(item).__name__} and no dict; give {_ACCEPTED}")
        names.update(dict.fromkeys(item))
    if not may_lack:
        for row, item in enumerate(listed):
            if lacking := [name for name in names if name not in item]:
                raise InvalidInputError(
                    f"row {row} lacks {', '.join(lacking)}, which others have; give None for NULL, or make two calls"
                )
    return _of_columns({name: [item.get(name) for item in listed] for name in names})

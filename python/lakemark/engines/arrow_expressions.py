"""Expressions of pyarrow as conditions for our scan.

pyarrow lets nobody look into an expression. It writes one as a batch of one row, though, to pickle it: names of
functions and columns stand in the metadata of the schema, in their order, and constants are the columns.
"""

from __future__ import annotations

import ctypes
import decimal
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.engines import leaves
from lakemark.engines.conditions import ANYTHING, NOTHING, Condition, all_of, any_of

__all__ = ["condition_of", "roots_of"]

_COMPARISONS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_CHAINS = {"and_kleene": "and", "and": "and", "or_kleene": "or", "or": "or"}


@dataclass(slots=True)
class _Path:
    """A column, or a field of one: the names on the way."""

    names: tuple[str, ...]


@dataclass(slots=True)
class _Call:
    """A function with its arguments."""

    name: str
    arguments: list[_Node] = field(default_factory=list)
    options: pa.Scalar | None = None


if TYPE_CHECKING:
    _Node: TypeAlias = _Path | _Call | pa.Scalar


def condition_of(expression: pc.Expression, schema: pa.Schema) -> Condition:
    r"""The rows that an expression may be true for, as a condition for our scan.

    >>> schema = pa.schema({"x": pa.int8(), "s": pa.string()})
    >>> condition_of((pc.field("x") > 1.5) & ~pc.field("s").isin(["O'Hare"]), schema).text
    '"x" >= 2 AND ("s" NOT IN (\'O\'\'Hare\') OR "s" IS NULL)'
    >>> condition_of(pc.field("x") + 1 > 2, schema).text is None
    True
    """
    try:
        return _condition(_tree(expression), schema, negated=False)
    except (_UnknownFormatError, pa.ArrowException, NotImplementedError, RecursionError):
        return ANYTHING


def roots_of(expression: pc.Expression) -> set[str] | None:
    """The columns that an expression reads; none if it cannot be told."""
    try:
        found, pending = set[str](), [_tree(expression)]
    except (_UnknownFormatError, pa.ArrowException, NotImplementedError):
        return None
    while pending:
        node = pending.pop()
        if isinstance(node, _Path):
            found.add(node.names[0])
        elif isinstance(node, _Call):
            pending.extend(node.arguments)
    return found


class _UnknownFormatError(Exception):
    """The expression is not written as this module reads it."""


class _CSchema(ctypes.Structure):
    """The first members of a schema of Arrow's C interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata in its order and with names that are there twice, which a dict of it has not.

    Arrow's C interface lays it down: the number of pairs, and of each name and value its length and bytes.
    """
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at: int | None = _CSchema.from_address(pointer_of(capsule, b"arrow_schema")).metadata
    if at is None:
        return []

    def number() -> int:
        nonlocal at
        found = ctypes.c_int32.from_address(at).value
        at += 4
        return found

    def text() -> str:
        nonlocal at
        length = number()
        found = ctypes.string_at(at, length)
        at += length
        return found.decode()

    return [(text(), text()) for _ in range(number())]


def _tree(expression: pc.Expression) -> _Node:  # noqa: C901 - one branch for each name in the metadata
    """The expression as a tree."""
    _, (buffer, *_) = expression.__reduce__()
    batch = pa.ipc.open_file(buffer).get_batch(0)
    events = iter(_metadata(batch.schema))
    # What is complete goes to the call that it is an argument of.
    open_calls = [_Call("")]
    for what, value in events:
        if what == "call":
            open_calls.append(_Call(value))
        elif what == "end":
            closed = open_calls.pop()
            if closed.name != value or not open_calls:
                raise _UnknownFormatError
            open_calls[-1].arguments.append(closed)
        elif what == "literal":
            open_calls[-1].arguments.append(batch.column(int(value))[0])
        elif what == "options":
            open_calls[-1].options = batch.column(int(value))[0]
        elif what == "field_ref":
            open_calls[-1].arguments.append(_Path((value,)))
        elif what == "nested_field_ref":
            names = tuple(next(events) for _ in range(int(value)))
            if any(of != "field_ref" for of, _ in names):
                raise _UnknownFormatError
            open_calls[-1].arguments.append(_Path(tuple(name for _, name in names)))
        else:
            raise _UnknownFormatError
    if len(open_calls) != 1 or len(open_calls[0].arguments) != 1:
        raise _UnknownFormatError
    return open_calls[0].arguments[0]


def _condition(node: _Node, schema: pa.Schema, *, negated: bool) -> Condition:  # noqa: PLR0911 - one for each kind of node
    """The rows that a part of an expression may be true for, or with `negated` those that it may be false for."""
    if isinstance(node, _Path):
        column = leaves.Column.of(schema, node.names)
        return ANYTHING if column is None else leaves.truth(column, is_true=not negated)
    if not isinstance(node, _Call):
        if not pa.types.is_boolean(node.type) and not pa.types.is_null(node.type):
            return ANYTHING
        is_true = node.is_valid and node.as_py() != negated
        return Condition(None, is_exact=True) if is_true else NOTHING
    if node.name in _CHAINS:
        parts = [_condition(operand, schema, negated=negated) for operand in _operands(node)]
        return all_of(parts) if (_CHAINS[node.name] == "and") != negated else any_of(parts)
    if node.name == "invert" and len(node.arguments) == 1:
        return _condition(node.arguments[0], schema, negated=not negated)
    if node.name == "if_else" and not negated:
        return _if_else(node, schema)
    if node.name in _COMPARISONS:
        return _comparison(node, schema, negated=negated)
    return _of_one_column(node, schema, negated=negated)


def _operands(call: _Call) -> list[_Node]:
    """The operands of a chain of ANDs or ORs, found without recursion: chains of thousands are deep on the left."""
    found: list[_Node] = []
    pending: list[_Node] = [call]
    while pending:
        node = pending.pop()
        if isinstance(node, _Call) and _CHAINS.get(node.name) == _CHAINS[call.name]:
            pending.extend(reversed(node.arguments))
        else:
            found.append(node)
    return found


def _if_else(call: _Call, schema: pa.Schema) -> Condition:
    """DuckDB's lists: `if_else(is_valid(x), is_in(x), NULL)`."""
    condition, found, otherwise = call.arguments
    if isinstance(otherwise, _Path | _Call) or (otherwise.is_valid and otherwise.as_py() is not False):
        return ANYTHING
    return all_of([_condition(condition, schema, negated=False), _condition(found, schema, negated=False)])


def _comparison(call: _Call, schema: pa.Schema, *, negated: bool) -> Condition:
    left, right = call.arguments
    operator = _COMPARISONS[call.name]
    if isinstance(right, _Path):
        left, right, operator = right, left, leaves.SWAPPED[operator]
    if not isinstance(left, _Path) or isinstance(right, _Path | _Call):
        return ANYTHING
    column = leaves.Column.of(schema, left.names)
    if column is None or (pa.types.is_decimal(column.type) and not _compares_decimals()):
        return ANYTHING
    # Comparisons with NaN are false, and what is not so is true.
    return leaves.compare(column, leaves.UNLESS[operator] if negated else operator, right, nan=negated)


@functools.cache
def _compares_decimals() -> bool:
    """Whether this pyarrow compares decimals by their values; older ones compare their digits alone."""
    nine = pa.table({"x": pa.array([decimal.Decimal("9.00")], pa.decimal128(9, 2))})
    return bool(nine.filter(pc.field("x") < decimal.Decimal("1.255")).num_rows == 0)


def _of_one_column(call: _Call, schema: pa.Schema, *, negated: bool) -> Condition:  # noqa: PLR0911 - one for each function
    """Functions of one column."""
    if len(call.arguments) != 1 or not isinstance(call.arguments[0], _Path):
        return ANYTHING
    column = leaves.Column.of(schema, call.arguments[0].names)
    if column is None:
        return ANYTHING
    if call.name == "is_valid":
        return leaves.null(column, is_null=negated)
    options: Any = call.options
    if options is None:
        return ANYTHING
    if call.name == "is_null":
        of_nan = options["nan_is_null"].as_py() and pa.types.is_floating(column.type)
        return ANYTHING if of_nan else leaves.null(column, is_null=not negated)
    if call.name == "is_in":
        # As the options say NULL may be taken for one of the constants or not: rows with NULL are kept.
        found = leaves.is_one_of(column, options["value_set"].values, is_in=not negated)
        if not negated and options["value_set"].values.null_count == 0:
            return found
        inexact = Condition(found.text, is_exact=False, chain=found.chain, depth=found.depth)
        return any_of([inexact, leaves.null(column, is_null=True)])
    if call.name == "starts_with" and not options["ignore_case"].as_py():
        return leaves.starts_with(column, options["pattern"], starts=not negated)
    return ANYTHING

"""Expressions of Polars as conditions for our scan, read from the JSON that Polars writes of them."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from lakemark.engines import leaves
from lakemark.engines.conditions import ANYTHING, NOTHING, Condition, all_of, any_of

__all__ = ["condition_of"]

_COMPARISONS = {
    "Eq": "=",
    "NotEq": "<>",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
    "EqValidity": "=",
    "NotEqValidity": "<>",
}
_CHAINS = {"And": "and", "LogicalAnd": "and", "Or": "or", "LogicalOr": "or"}

# By whether the lower and the upper bound belong to the range.
_CLOSED = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}

# Integers of so many bits are the same as signed ones of 64 bits and as floats.
_NARROW_BITS = 32

# Digits of the largest integer of 64 bits.
_DIGITS = 20

# The JSON is promised by no version of Polars: what is written in another way is left to Polars.
_UNREADABLE = (pl.exceptions.PolarsError, ValueError, TypeError, KeyError, IndexError, AttributeError)

if TYPE_CHECKING:
    # A node of the JSON.
    _Node = Any


def condition_of(expression: pl.Expr, schema: pa.Schema) -> Condition:
    r"""The rows that an expression may be true for, as a condition for our scan.

    >>> schema = pa.schema({"x": pa.int8(), "s": pa.string()})
    >>> condition_of((pl.col("x") > 1.5) & ~pl.col("s").is_in(["O'Hare"]), schema).text
    '"x" >= 2 AND "s" NOT IN (\'O\'\'Hare\')'
    >>> condition_of(pl.col("x") % 2 == 0, schema).text is None
    True
    """
    try:
        return _condition(json.loads(expression.meta.serialize(format="json")), schema, negated=False)
    except (*_UNREADABLE, RecursionError):
        return ANYTHING


def _condition(node: _Node, schema: pa.Schema, *, negated: bool) -> Condition:
    """The rows that a part of an expression may be true for, or with `negated` those that it may be false for."""
    try:
        return _read(node, schema, negated=negated)
    except _UNREADABLE:
        return ANYTHING


def _read(node: _Node, schema: pa.Schema, *, negated: bool) -> Condition:  # noqa: PLR0911 - one for each kind of node
    (what, body), *more = node.items()
    if more:
        return ANYTHING
    if what == "Alias":
        return _condition(body[0], schema, negated=negated)
    if what == "Literal":
        constant = _constant(node)
        if constant is None or not (pa.types.is_boolean(constant.type) or pa.types.is_null(constant.type)):
            return ANYTHING
        return Condition(None, is_exact=True) if constant.is_valid and constant.as_py() != negated else NOTHING
    if what == "BinaryExpr":
        return _binary(node, schema, negated=negated)
    if what == "Ternary" and not negated:
        return _ternary(body, schema)
    column = _column(node, schema)
    if column is not None:
        return leaves.truth(column, is_true=not negated)
    return _function(body, schema, negated=negated) if what == "Function" else ANYTHING


def _binary(node: _Node, schema: pa.Schema, *, negated: bool) -> Condition:
    body = node["BinaryExpr"]
    if (word := _CHAINS.get(body["op"])) is not None:
        parts = [_condition(operand, schema, negated=negated) for operand in _operands(node, word)]
        return all_of(parts) if (word == "and") != negated else any_of(parts)
    operator = _COMPARISONS.get(body["op"])
    if operator is None:
        return ANYTHING
    column, literal = _column(body["left"], schema), body["right"]
    if column is None:
        column, literal, operator = _column(body["right"], schema), body["left"], leaves.SWAPPED[operator]
    constant = _constant(literal)
    if column is None or constant is None:
        return ANYTHING
    operator = leaves.UNLESS[operator] if negated else operator
    if not body["op"].endswith("Validity"):
        return _compare(column, operator, constant)
    # NULL equals NULL, and differs from all else.
    if not constant.is_valid:
        return leaves.null(column, is_null=operator == "=")
    found = _compare(column, operator, constant)
    return found if operator == "=" else any_of([found, leaves.null(column, is_null=True)])


def _operands(node: _Node, word: str) -> list[_Node]:
    """The operands of a chain of ANDs or ORs, found without recursion."""
    found, pending = [], [node]
    while pending:
        part = pending.pop()
        body = part.get("BinaryExpr")
        if body is not None and _CHAINS.get(body["op"]) == word:
            pending.extend([body["right"], body["left"]])
        else:
            found.append(part)
    return found


def _ternary(body: _Node, schema: pa.Schema) -> Condition:
    """What Polars makes of comparisons that its types decide: `when(x.is_not_null()).then(…).otherwise(None)`."""
    otherwise = _constant(body["falsy"])
    if otherwise is None or (otherwise.is_valid and otherwise.as_py() is not False):
        return ANYTHING
    return all_of([_condition(body[part], schema, negated=False) for part in ("predicate", "truthy")])


def _function(body: _Node, schema: pa.Schema, *, negated: bool) -> Condition:  # noqa: PLR0911 - one for each function
    (room, function), *_ = body["function"].items()
    inputs = body["input"]
    if room == "Boolean" and function in ("AllHorizontal", "AnyHorizontal"):
        parts = [_condition(part, schema, negated=negated) for part in inputs]
        return all_of(parts) if (function == "AllHorizontal") != negated else any_of(parts)
    if (room, function) == ("Boolean", "Not"):
        return _condition(inputs[0], schema, negated=not negated)
    column = _column(inputs[0], schema)
    if column is None:
        return ANYTHING
    if room == "Boolean" and function in ("IsNull", "IsNotNull"):
        return leaves.null(column, is_null=(function == "IsNull") != negated)
    if (room, function) == ("StringExpr", "StartsWith"):
        constant = _constant(inputs[1])
        return ANYTHING if constant is None else leaves.starts_with(column, constant, starts=not negated)
    if room == "Boolean" and "IsBetween" in function:
        operators = _CLOSED[function["IsBetween"]["closed"]]
        bounds = [_constant(bound) for bound in inputs[1:]]
        parts = [
            ANYTHING if bound is None else _compare(column, leaves.UNLESS[operator] if negated else operator, bound)
            for operator, bound in zip(operators, bounds, strict=True)
        ]
        return any_of(parts) if negated else all_of(parts)
    if room == "Boolean" and "IsIn" in function and function["IsIn"]["nulls_equal"] is False:
        listed = _list(inputs[1])
        if listed is None or not _is_comparable(column.type, listed.type):
            return ANYTHING
        return leaves.is_one_of(column, listed, is_in=not negated)
    return ANYTHING


def _column(node: _Node, schema: pa.Schema) -> leaves.Column | None:
    """The column that a node is, a field of one, or one whose cast changes no value."""
    if "Column" in node:
        return leaves.Column.of(schema, (node["Column"],))
    if "Cast" in node:
        column = _column(node["Cast"]["expr"], schema)
        return column if column is not None and _is_kept(column.type, node["Cast"]["dtype"]["Literal"]) else None
    names: list[str] = []
    while "Function" in node:
        function = node["Function"]["function"]
        if "StructExpr" not in function or "FieldByName" not in function["StructExpr"]:
            return None
        names.insert(0, function["StructExpr"]["FieldByName"])
        (node,) = node["Function"]["input"]
    return leaves.Column.of(schema, (node["Column"], *names)) if names else None


def _is_kept(kind: pa.DataType, wanted: _Node) -> bool:
    """Whether a cast to a type changes no value."""
    if pa.types.is_float32(kind):
        return bool(wanted == "Float64")
    if not pa.types.is_integer(kind):
        return False
    if wanted in ("Int64", "Float64"):
        return bool(kind.bit_width <= _NARROW_BITS)
    if wanted == "Int128":
        return True
    precision, scale = wanted["Decimal"]
    return bool(precision - scale >= _DIGITS)


def _compare(column: leaves.Column, operator: str, constant: pa.Scalar) -> Condition:
    # NaN is greater than every number.
    return leaves.compare(column, operator, constant, nan=operator in (">", ">="))


def _is_comparable(kind: pa.DataType, listed: pa.DataType) -> bool:
    """Whether Polars finds values of a type in a list: some versions find no moment among those of another unit."""
    return not pa.types.is_temporal(listed) or pl.Series(pa.array([], kind)).to_arrow().type == listed


def _values(node: _Node) -> pl.Series | None:
    """What a literal stands for; none if it is no literal. One that JSON loses, such as NaN, is an error."""
    if "Literal" not in node:
        return None
    literal = pl.Expr.deserialize(io.BytesIO(json.dumps(node).encode()), format="json")
    return pl.select(literal).to_series()


def _constant(node: _Node) -> pa.Scalar | None:
    found = _values(node)
    return None if found is None or len(found) != 1 else found.to_arrow()[0]


def _list(node: _Node) -> pa.Array | None:
    """The values of a list that is a literal."""
    found = _values(node)
    if found is None:
        return None
    return found[0].to_arrow() if isinstance(found.dtype, pl.List | pl.Array) and len(found) == 1 else found.to_arrow()

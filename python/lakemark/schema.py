"""The columns of a table or of a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakemark import _internal

__all__ = ["Field", "Schema"]


class Field(NamedTuple):
    """One column.

    Attributes:
        name: Its name.
        type: Its Arrow type, as Arrow's Rust implementation writes it: `Int64`, `Timestamp(µs, "UTC")`.
        nullable: Whether it may hold nulls.
    """

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True, repr=False)
class Schema:
    """The columns, in order. `pyarrow.schema(...)` and every other reader of the Arrow C interface take it.

    >>> import lakemark
    >>> schema = lakemark.Table(getfixture("flights")).schema
    >>> schema.names[:3]
    ['flight', 'origin', 'distance']
    >>> schema["origin"].nullable
    True
    """

    _inner: _internal.Schema

    @property
    def fields(self) -> list[Field]:
        """The columns as a list."""
        return [Field(*field) for field in self._inner.fields()]

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [field.name for field in self.fields]

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        lines = (f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in self)
        return "\n".join(lines)

    def __arrow_c_schema__(self) -> object:
        return self._inner.__arrow_c_schema__()

    def to_arrow(self) -> pa.Schema:
        """The schema as pyarrow has it."""
        import pyarrow as pa

        return pa.schema(self)

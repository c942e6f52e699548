"""What all parts of a table go by: its native half, its columns, key and indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemark.reports import Indexes, Snapshot
from lakemark.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakemark import _internal

__all__ = ["Handle", "names_of", "option_texts"]


class Handle:
    """An open table."""

    _inner: _internal.Table

    @property
    def schema(self) -> Schema:
        """The columns: those in the files, then partition columns."""
        return self._schema()

    def _schema(self) -> Schema:
        return Schema(self._inner.schema())

    @property
    def snapshot(self) -> Snapshot:
        """The state of the table now."""
        return Snapshot.from_json(self._inner.snapshot())

    @property
    def indexes(self) -> Indexes:
        """The indexes and how much of the table they cover now. They draw themselves in a notebook."""
        return Indexes(self.snapshot.indexes)

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns of the key; none if the table takes no updates."""
        key = self._inner.key()
        return None if key is None else tuple(key)


def names_of(columns: str | Sequence[str]) -> list[str]:
    """One name or several as a list."""
    return [columns] if isinstance(columns, str) else list(columns)


def column_list(names: Sequence[str]) -> str:
    """Names as an option has them: with commas between, those quoted that could be read otherwise."""

    def shown(name: str) -> str:
        is_plain = name != "" and name.strip() == name and not {",", '"'} & set(name)
        return name if is_plain else '"' + name.replace('"', '""') + '"'

    return ",".join(shown(name) for name in names)


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options are text, written as SQL writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}

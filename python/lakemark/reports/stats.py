"""The numbers of a table that operators watch, each with what it means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lakemark import _pictures

__all__ = ["Stat", "Stats"]


@dataclass(frozen=True, slots=True)
class Stat:
    """A number, or one for each value of a label.

    Attributes:
        name: Its name, as OpenMetrics tells it.
        kind: A `counter` only grows while the object lives; a `gauge` goes up and down.
        unit: Its unit, where it has one.
        by: What tells its numbers apart: `verb`, `kind` or `index`.
        meaning: What it counts.
        value: The number, or the numbers by the values of the label.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: str | None
    by: str | None
    meaning: str
    value: float | dict[str, float]


class Stats(Mapping[str, float | dict[str, float]]):
    """The numbers of a table by their names. `str()` gives them as text, and a notebook draws them.

    >>> stats = Stats([Stat("lakemark_segments", "gauge", None, "index", "Segments of an index.", {"by_city": 2.0})])
    >>> stats["lakemark_segments"], stats.meaning("lakemark_segments")
    ({'by_city': 2.0}, 'Segments of an index.')
    >>> print(stats)
    name                       | value | meaning
    ---------------------------+-------+----------------------
    lakemark_segments{by_city} |     2 | Segments of an index.
    """

    __slots__ = ("_stats",)

    def __init__(self, stats: list[Stat]) -> None:
        self._stats = {stat.name: stat for stat in stats}

    @classmethod
    def from_json(cls, text: str) -> Stats:
        """Makes them from their JSON form."""
        return cls([Stat(**stat) for stat in json.loads(text)])

    def __getitem__(self, name: str) -> float | dict[str, float]:
        return self._stats[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._stats)

    def __len__(self) -> int:
        return len(self._stats)

    def stat(self, name: str) -> Stat:
        """A number with its kind, its unit and its meaning."""
        return self._stats[name]

    def meaning(self, name: str) -> str:
        """What a number counts."""
        return self._stats[name].meaning

    def to_dict(self) -> list[dict[str, Any]]:
        """All of it as plain Python values, in the order of docs/operations.md."""
        return [asdict(stat) for stat in self._stats.values()]

    def _rows(self) -> list[list[str]]:
        rows = []
        for stat in self._stats.values():
            by_label = stat.value if isinstance(stat.value, dict) else {"": stat.value}
            for label, value in by_label.items():
                name = f"{stat.name}{{{label}}}" if label else stat.name
                rows.append([name, f"{value:,.15g}", stat.meaning])
        return rows

    def __str__(self) -> str:
        return _pictures.text_table(_COLUMNS, self._rows(), more=False)

    def __repr__(self) -> str:
        return f"Stats({len(self)} numbers)"

    def _repr_html_(self) -> str:
        return _pictures.html_table(_COLUMNS, self._rows(), more=False)


_COLUMNS = [("name", "Utf8"), ("value", "Float64"), ("meaning", "Utf8")]

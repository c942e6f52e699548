"""What reports have in common: the description that they come with, and how it is shown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from lakemark import _pictures

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Described", "Description"]


@dataclass(frozen=True, slots=True)
class Description:
    """What a report says to people: text and the tables of notebooks are drawn from it.

    Attributes:
        title: What was done; empty if nothing was to be done but to look.
        facts: Values for people, each with its name.
        notes: What else is worth a line.
        text: All of it as text.
    """

    title: str
    facts: list[tuple[str, str]]
    notes: list[str]
    text: str

    @classmethod
    def from_json(cls, values: str, text: str) -> Description:
        """Makes one from its JSON form and its text."""
        said = json.loads(values)
        return cls(said["title"], [(name, value) for name, value in said["facts"]], said["notes"], text)


@dataclass(frozen=True, slots=True)
class Described:
    """A report that comes with its description."""

    _description: Description = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def from_json(cls, values: str, description: str, text: str) -> Self:
        """Makes a report from the JSON forms of its values and its description, and its text."""
        return cls(**cls._read(json.loads(values)), _description=Description.from_json(description, text))

    @classmethod
    def from_text(cls, values: str, text: str) -> Self:
        """Makes a report from the JSON form of its values, and its text where that is all of its description."""
        description = Description(title="", facts=[], notes=[], text=text.rstrip())
        return cls(**cls._read(json.loads(values)), _description=description)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        """The attributes, of what the JSON form has."""
        return said

    def _drawn(self) -> str:
        """What a notebook draws below the facts."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values, the same as the shell's `--format json`."""
        values: dict[str, Any] = asdict(self)
        del values["_description"]
        return values

    def __str__(self) -> str:
        return self._description.text

    def _repr_html_(self) -> str:
        said = self._description
        title = f"<b>{escape(said.title)}</b>" if said.title else ""
        facts = _pictures.definitions(said.facts) if said.facts else ""
        return title + facts + self._drawn() + (_pictures.lines(said.notes) if said.notes else "")

"""What a look at everything that goes wrong with a table found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lakemark import _pictures
from lakemark.reports.described import Described

__all__ = ["HealthReport", "Problem"]


@dataclass(frozen=True, slots=True)
class HealthReport(Described):
    """What was found of the health of a table. It is true if nothing asks for somebody; notes do not.

    Attributes:
        location: The table, as it was given.
        store: Where the indexes are; none for a glob or a single file opened without a store.
        release: The release that looked.
        checked: What was looked at, in this order.
        problems: What was found, in the same order.
    """

    location: str
    store: str | None
    release: str
    checked: list[str]
    problems: list[Problem]

    def __bool__(self) -> bool:
        return all(problem.severity == "note" for problem in self.problems)

    @staticmethod
    def _read(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "problems": [Problem(**problem) for problem in said["problems"]]}

    def _repr_html_(self) -> str:
        said = self._description
        columns = [("severity", ""), ("name", ""), ("problem", ""), ("what to do", "")]
        rows = [[found.severity, found.name, found.problem, found.remedy] for found in self.problems]
        table = _pictures.html_table(columns, rows, more=False) if rows else ""
        return _pictures.definitions([(said.title, self.location), *said.facts]) + table


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a table, or worth to know.

    Attributes:
        name: What programs know it by; docs/operations.md lists the names.
        severity: Whether it asks for somebody: a `note` does not. After a `warning` answers are right, and cost more
            than they have to, or will. After an `error` queries or changes fail.
        problem: What is wrong.
        remedy: What to do.
    """

    name: str
    severity: Literal["note", "warning", "error"]
    problem: str
    remedy: str

"""What to reach, beside what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import measure

if TYPE_CHECKING:
    from collections.abc import Iterable


class Goal(NamedTuple):
    """What to reach, and what was measured; none if it was not."""

    what: str
    measured: float | None
    sign: str
    goal: float

    @property
    def is_met(self) -> bool | None:
        """Whether it is reached; none if nothing was measured."""
        if self.measured is None:
            return None
        return self.measured <= self.goal if self.sign == "<=" else self.measured >= self.goal

    def cells(self) -> list[str]:
        """A row of a table."""
        measured = "not measured" if self.measured is None else f"{self.measured:,.2f}"
        verdict = {True: "met", False: "missed", None: ""}[self.is_met]
        return [self.what, f"{self.sign} {self.goal:g}", measured, verdict]


def print_goals(goals: Iterable[Goal]) -> None:
    """Prints them as a table."""
    measure.print_table(("what", "goal", "measured", ""), [goal.cells() for goal in goals])

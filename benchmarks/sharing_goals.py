"""The goals of work sharing, each computed from what was measured; none of what was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sharing_engines import AGAIN, DIRECT, DUCKDB, ENGINE, FLIGHT, LEVELS, OFF, PAGES, PLANS, STARS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Throughput that is less by so much falls.
STEADY = 0.95
MOST_RATIO, MOST_MILLISECONDS = 1.02, 1.0
MOST_CPU = 1.05


class Measured:
    """What was measured, by workload, clients, label and way."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self._ways = {(each["workload"], each["clients"], each["label"]): each["ways"] for each in found}

    def of(self, workload: str, clients: int, way: str, field: str, label: str = "") -> float | None:
        """A number of a point."""
        value = self._ways.get((workload, clients, label), {}).get(way, {}).get(field)
        return None if value is None else float(value)

    def clients(self, workload: str) -> list[int]:
        """How many clients a workload was measured with."""
        return sorted({clients for name, clients, _ in self._ways if name == workload})

    def labels(self, workload: str) -> list[str]:
        """What else a workload was measured with."""
        return [label for name, _, label in self._ways if name == workload]


@dataclass(frozen=True)
class Goal:
    """What to reach: at most this, or at least this."""

    what: str
    limit: float
    value: Callable[[Measured], float | None]
    is_least: bool = False

    def judge(self, measured: Measured) -> dict[str, Any]:
        """The goal with what was measured."""
        value = self.value(measured)
        met = None if value is None else value >= self.limit if self.is_least else value <= self.limit
        goal = f"{'>=' if self.is_least else '<='} {self.limit:.2f}"
        return {"what": self.what, "goal": goal, "measured": value, "met": met}


def ratio(one: float | None, other: float | None) -> float | None:
    """How many times as much, if both are known."""
    return None if one is None or not other else one / other


def times_one(clients: int) -> Callable[[Measured], float | None]:
    """How many times as long so many identical queries take as one of them."""
    return lambda measured: ratio(
        measured.of("identical", clients, PLANS, "wall_seconds"), measured.of("identical", 1, PLANS, "wall_seconds")
    )


def times_less_cpu(workload: str, clients: int, way: str, than: str) -> Callable[[Measured], float | None]:
    """How many times as many queries a CPU second a way answers as another one."""
    field = "cpu_seconds_per_query"
    return lambda measured: ratio(
        measured.of(workload, clients, than, field), measured.of(workload, clients, way, field)
    )


def cpu_share(workload: str, clients: int, way: str, of: str) -> Callable[[Measured], float | None]:
    """The share of another way's CPU that a query of this way takes."""
    field = "cpu_seconds_per_query"
    return lambda measured: ratio(measured.of(workload, clients, way, field), measured.of(workload, clients, of, field))


def least_throughput(workload: str, way: str, beyond: int) -> Callable[[Measured], float | None]:
    """The least share of the throughput with so many clients that more of them have."""

    def least(measured: Measured) -> float | None:
        rates = [
            measured.of(workload, clients, way, "queries_per_second")
            for clients in measured.clients(workload)
            if clients >= beyond
        ]
        known = [rate for rate in rates if rate is not None]
        return min(known[1:]) / known[0] if len(known) > 1 else None

    return least


def worst_of_mixes(measured: Measured) -> float | None:
    """The most CPU that a level takes of a random mix beside unshared queries, where these are not as far apart."""
    worst = [
        1.0 if (measured.of("random", clients, AGAIN, "cpu_ratio") or 1.0) > MOST_CPU else found
        for clients in measured.clients("random")
        for way in LEVELS
        if (found := measured.of("random", clients, way, "cpu_ratio")) is not None
    ]
    return max(worst, default=None)


def worst_alone(measured: Measured) -> float | None:
    """How many times as long a level takes of a lone query at worst, where it is more than a millisecond."""
    worst = [alone(measured, label, way) for label in measured.labels("alone") for way in LEVELS]
    return max((each for each in worst if each is not None), default=None)


def alone(measured: Measured, label: str, way: str) -> float | None:
    """How many times as long a level takes for a query; 1 if that is a millisecond more, or what noise alone does."""
    found = measured.of("alone", 1, way, "ratio", label)
    if found is None:
        return None
    longer = measured.of("alone", 1, way, "longer_ms", label) or 0.0
    noise = measured.of("alone", 1, AGAIN, "ratio", label) or 1.0
    return 1.0 if longer <= MOST_MILLISECONDS or noise > MOST_RATIO else found


def longer_by(way: str) -> Callable[[Measured], float | None]:
    """The most milliseconds that an answer takes longer through Flight than in process."""

    def longer(measured: Measured) -> float | None:
        found = [measured.of("alone", 1, way, "longer_ms", label) for label in measured.labels("alone")]
        return max((each for each in found if each is not None), default=None)

    return longer


def cold_scans(way: str) -> Callable[[Measured], float | None]:
    """How many times as many bytes come from disk for 8 cold scans as for one."""
    return lambda measured: ratio(measured.of("cold", 8, way, "disk_bytes"), measured.of("cold", 1, way, "disk_bytes"))


GOALS = (
    *(
        Goal(f"{clients} identical Q1, times as long as one", limit, times_one(clients))
        for clients, limit in ((8, 1.3), (64, 1.5), (256, 2.0))
    ),
    Goal("8 identical Q1, share of DuckDB's CPU", 1 / 3, cpu_share("identical", 8, PLANS, DUCKDB)),
    Goal("8 Q1 of different dates, pages: share of unshared CPU", 0.6, cpu_share("dates", 8, PAGES, OFF)),
    Goal(
        "32 clients, Q3.2, pages: times less CPU than the engine", 1.8, times_less_cpu("q3.2", 32, PAGES, ENGINE), True
    ),
    Goal(
        "32 clients, Q3.2, stars: times less CPU than the engine", 6.0, times_less_cpu("q3.2", 32, STARS, ENGINE), True
    ),
    Goal(
        "32 clients, mix by Flight: times less CPU than the engine",
        6.0,
        times_less_cpu("mix", 32, FLIGHT, ENGINE),
        True,
    ),
    Goal("32 clients, mix by Flight: times less CPU than DuckDB", 3.0, times_less_cpu("mix", 32, FLIGHT, DUCKDB), True),
    Goal("mix by Flight: least throughput beyond 32 clients", STEADY, least_throughput("mix", FLIGHT, 32), True),
    Goal("random mixes: share of unshared CPU at worst", MOST_CPU, worst_of_mixes),
    Goal("alone: times as long as unshared at worst, beyond 1 ms", MOST_RATIO, worst_alone),
    Goal("alone: ms longer by Flight at worst", 2.0, longer_by(DIRECT)),
    Goal("alone: ms longer by Flight at worst, by a cursor each", 2.0, longer_by(FLIGHT)),
    *(Goal(f"8 cold scans, {way}: times the bytes of one", 1.1, cold_scans(way)) for way in (PLANS, PAGES)),
)


def judged(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All goals with what was measured."""
    measured = Measured(found)
    return [goal.judge(measured) for goal in GOALS]


def shown(goal: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """A goal as a row of a table."""
    if goal["measured"] is None:
        return goal["what"], goal["goal"], "", "not measured"
    return goal["what"], goal["goal"], f"{goal['measured']:.2f}", "met" if goal["met"] else "missed"

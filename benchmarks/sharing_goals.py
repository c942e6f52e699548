"""The goals of work sharing, each computed from what was measured; none of what was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sharing_engines import AGAIN, DIRECT, DUCKDB, ENGINE, FLIGHT, FLIGHT_STARS, LEVELS, OFF, PAGES, PLANS, STARS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Throughput that is less by so much falls.
STEADY = 0.95
MOST_RATIO, MOST_MILLISECONDS = 1.02, 1.0
MOST_RATIO_OF_MIXES = 1.05
# What is compared of mixes.
MIXED = ("cpu_ratio", "seconds_ratio")


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


def is_quiet(measured: Measured, point: tuple[str, int, str], field: str, most: float) -> bool:
    """Whether unshared queries beside themselves are no further apart than a goal allows, one way or the other."""
    workload, clients, label = point
    again = measured.of(workload, clients, AGAIN, field, label)
    return again is None or 1 / most <= again <= most


def noisy(found: list[dict[str, Any]]) -> list[str]:
    """The points that say nothing, as unshared queries beside themselves differ by more than a goal allows."""
    measured = Measured(found)
    mixes = [
        f"random {clients}"
        for clients in measured.clients("random")
        if not all(is_quiet(measured, ("random", clients, ""), field, MOST_RATIO_OF_MIXES) for field in MIXED)
    ]
    alone = [
        label
        for label in measured.labels("alone")
        if not is_quiet(measured, ("alone", 1, label), "ratio", MOST_RATIO) and not is_short(measured, label)
    ]
    return mixes + [f"alone {label}" for label in alone]


def is_short(measured: Measured, label: str) -> bool:
    """Whether a lone unshared query beside itself is no further apart than a millisecond."""
    return abs(measured.of("alone", 1, AGAIN, "longer_ms", label) or 0.0) <= MOST_MILLISECONDS


def worst_of_mixes(field: str) -> Callable[[Measured], float | None]:
    """The most that a level takes of a random mix beside unshared queries, where these are not as far apart."""

    def worst(measured: Measured) -> float | None:
        found = [
            measured.of("random", clients, way, field)
            for clients in measured.clients("random")
            if is_quiet(measured, ("random", clients, ""), field, MOST_RATIO_OF_MIXES)
            for way in LEVELS
        ]
        return max((each for each in found if each is not None), default=None)

    return worst


def worst_alone(measured: Measured) -> float | None:
    """How many times as long a level takes of a lone query at worst, where it is more than a millisecond."""
    worst = [alone(measured, label, way) for label in measured.labels("alone") for way in LEVELS]
    return max((each for each in worst if each is not None), default=None)


def alone(measured: Measured, label: str, way: str) -> float | None:
    """How many times as long a level takes for a query; 1 if it is a millisecond more, none where all is noise."""
    found = measured.of("alone", 1, way, "ratio", label)
    if found is None:
        return None
    if (measured.of("alone", 1, way, "longer_ms", label) or 0.0) <= MOST_MILLISECONDS:
        return 1.0
    return found if is_quiet(measured, ("alone", 1, label), "ratio", MOST_RATIO) else None


def longer_by(way: str) -> Callable[[Measured], float | None]:
    """The most milliseconds that an answer takes longer through Flight than in process, where noise is no more."""

    def longer(measured: Measured) -> float | None:
        found = [
            measured.of("alone", 1, way, "longer_than_here_ms", label)
            for label in measured.labels("alone")
            if is_short(measured, label)
        ]
        return max((each for each in found if each is not None), default=None)

    return longer


def cold_scans(way: str, field: str = "disk_bytes") -> Callable[[Measured], float | None]:
    """How many times as many bytes come from disk for 8 cold scans as for one."""
    return lambda measured: ratio(measured.of("cold", 8, way, field), measured.of("cold", 1, way, field))


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
    *(
        Goal(f"32 clients, mix by {way}: times less CPU than {than}", limit, times_less_cpu("mix", 32, way, than), True)
        for way in (FLIGHT, FLIGHT_STARS)
        for than, limit in ((ENGINE, 6.0), (DUCKDB, 3.0))
    ),
    *(
        Goal(f"mix by {way}: least throughput beyond 32 clients", STEADY, least_throughput("mix", way, 32), True)
        for way in (FLIGHT, FLIGHT_STARS)
    ),
    Goal("random mixes: share of unshared CPU at worst", MOST_RATIO_OF_MIXES, worst_of_mixes("cpu_ratio")),
    Goal("random mixes: times as long as unshared at worst", MOST_RATIO_OF_MIXES, worst_of_mixes("seconds_ratio")),
    Goal("alone: times as long as unshared at worst, beyond 1 ms", MOST_RATIO, worst_alone),
    Goal("alone: ms longer by Flight at worst", 2.0, longer_by(DIRECT)),
    Goal("alone: ms longer by Flight at worst, by a cursor each", 2.0, longer_by(FLIGHT)),
    *(Goal(f"8 cold scans, {way}: times the bytes of one", 1.1, cold_scans(way)) for way in (PLANS, PAGES)),
    # What the page cache has is not read from disk again, whoever asks for it.
    Goal("8 cold scans, pages: times the bytes of one, also from memory", 1.1, cold_scans(PAGES, "read_bytes")),
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

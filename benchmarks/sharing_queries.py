"""What clients of the sharing benchmark ask: statements drawn from templates, and workloads of them.

The same workload, client and turn always give the same statement, so that every engine is asked the same.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ssb
from sharing_engines import AGAIN, DIRECT, DUCKDB, ENGINE, FLIGHT, FLIGHT_STARS, LEVELS, MEMORY, OFF, PAGES, STARS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SEED = 32
LINEITEM, LINEORDER = "lineitem", "lineorder"
NATIONS = tuple(nation for _, nation in ssb.PLACES)
REGIONS = tuple(ssb.NATIONS)
FIRST_YEAR, LAST_YEAR = 1992, 1998
# Q1 takes the days up to 60 to 120 days before this one.
LAST_DAY, DELTAS = dt.date(1998, 12, 1), range(60, 121)
USUAL_DELTA = 90

# By dimension: the column of the fact and the column that it names.
KEYS = {
    "dates": ("lo_orderdate", "d_datekey"),
    "customer": ("lo_custkey", "c_custkey"),
    "supplier": ("lo_suppkey", "s_suppkey"),
    "part": ("lo_partkey", "p_partkey"),
}
# By flight: what is summed, and the dimensions.
MEASURES = {1: ("lo_extendedprice", "lo_discount"), 2: ("lo_revenue",), 3: ("lo_revenue",)}
DIMENSIONS = {1: ("dates",), 2: ("dates", "part", "supplier"), 3: ("customer", "supplier", "dates")}
# What most workloads are measured with. The engine's own package is measured where the engine is, if it is asked for.
USUAL_WAYS = (ENGINE, DUCKDB, OFF, *LEVELS)
# With more clients than this each asks once at least, as there are enough of them to make a steady state.
MOST_PATIENT = 64
Q1_VALUES = ("l_quantity", "l_extendedprice", "l_discount", "l_tax")
Q1_COLUMNS = ("l_returnflag", "l_linestatus", *Q1_VALUES, "l_shipdate")


@dataclass(frozen=True)
class Statement:
    """A query, and what it wants of its largest table.

    Attributes:
        template: What it was drawn from.
        sql: Its text.
        fact: The table; none of a query whose row set nobody asks for.
        columns: The columns that it reads of it.
        conditions: What it asks of its rows, with a subquery for the keys of each dimension.
    """

    template: str
    sql: str
    fact: str = ""
    columns: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """One measurement of a workload: how many clients, and what else is varied."""

    clients: int
    label: str = ""
    amounts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Workload:
    """What clients ask.

    Attributes:
        title: What it shows.
        points: What is measured.
        draw: The statement of a client at a point, of random numbers and of its number and turn, added.
        turns: How often each client asks at least; all begin at the same time. Of many clients each asks once.
        loop: For how long they go on asking, times `--seconds`.
        is_cold: Whether the files leave the page cache before.
        least_rounds: How often a point is measured at least.
        ways: Those that are measured.
    """

    title: str
    points: tuple[Point, ...]
    draw: Callable[[random.Random, int, Point], Statement]
    turns: int = 1
    loop: float = 0.0
    is_cold: bool = False
    least_rounds: int = 1
    ways: tuple[str, ...] = USUAL_WAYS

    def least_turns(self, point: Point) -> int:
        """How often each client of a point asks at least."""
        return self.turns if point.clients <= MOST_PATIENT else 1


def statement(workload: str, point: Point, client: int, turn: int) -> Statement:
    """What a client asks in a turn."""
    drawn = random.Random(f"{SEED} {workload} {client} {turn}")  # noqa: S311 - no secret
    return WORKLOADS[workload].draw(drawn, client + turn, point)


def q1(delta: int) -> Statement:
    """TPC-H Q1, which reads nearly all lines."""
    condition = f"l_shipdate <= DATE '{LAST_DAY - dt.timedelta(days=delta)}'"
    price = "l_extendedprice * (1 - l_discount)"
    sums = f"sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base, sum({price}) AS sum_price"
    means = "avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc"
    sql = (
        f"SELECT l_returnflag, l_linestatus, {sums}, sum({price} * (1 + l_tax)) AS sum_charge, {means}, "
        f"count(*) AS lines FROM lineitem WHERE {condition} "
        "GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus"
    )
    return Statement("Q1", sql, LINEITEM, Q1_COLUMNS, (condition,))


def star(template: str, flight: int, conditions: Mapping[str, str], by: str = "") -> Statement:
    """A star query of SSB, with conditions by table."""
    rest = " AND ".join(conditions.values()) + (f" BY {by}" if by else "")
    wanted = [
        condition
        if table == LINEORDER
        else f"{KEYS[table][0]} IN (SELECT {KEYS[table][1]} FROM {table} WHERE {condition})"
        for table, condition in conditions.items()
    ]
    own = [column for column in ssb.FILTERED if column in conditions.get(LINEORDER, "")]
    joined = [KEYS[table][0] for table in DIMENSIONS[flight]]
    columns = tuple(dict.fromkeys((*MEASURES[flight], *joined, *own)))
    return Statement(template, ssb.flight(flight, rest), LINEORDER, columns, tuple(wanted))


def q1_1(drawn: random.Random) -> Statement:
    """SSB Q1.1 of a year and a discount."""
    discount = drawn.randint(1, 9)
    lines = f"lo_discount BETWEEN {discount - 1} AND {discount + 1} AND lo_quantity < 25"
    return star("Q1.1", 1, {"dates": f"d_year = {drawn.randint(FIRST_YEAR, LAST_YEAR)}", LINEORDER: lines})


def q2_1(drawn: random.Random) -> Statement:
    """SSB Q2.1 of a category and a region."""
    category = f"p_category = 'MFGR#{drawn.randint(1, 5)}{drawn.randint(1, 5)}'"
    return star("Q2.1", 2, {"part": category, "supplier": f"s_region = '{drawn.choice(REGIONS)}'"})


def q3_2(drawn: random.Random) -> Statement:
    """SSB Q3.2 of two nations and some years: 0.02% to 0.16% of the lines."""
    first, last = sorted(drawn.choices(range(FIRST_YEAR, LAST_YEAR + 1), k=2))
    return q3_2_of("Q3.2", (drawn.choice(NATIONS),), (drawn.choice(NATIONS),), first, last)


def q3_2_wide(drawn: random.Random, customers: int, suppliers: int) -> Statement:
    """SSB Q3.2 of several nations each and all years."""
    template = f"Q3.2 of {customers} x {suppliers} nations"
    nations = drawn.sample(NATIONS, customers), drawn.sample(NATIONS, suppliers)
    return q3_2_of(template, *nations, FIRST_YEAR, LAST_YEAR)


def q3_2_of(template: str, customers: Sequence[str], suppliers: Sequence[str], first: int, last: int) -> Statement:
    """SSB Q3.2 of these nations and years."""
    conditions = {
        "customer": one_of("c_nation", customers),
        "supplier": one_of("s_nation", suppliers),
        "dates": f"d_year BETWEEN {first} AND {last}",
    }
    return star(template, 3, conditions, "c_city, s_city")


def one_of(column: str, values: Sequence[str]) -> str:
    """The condition that a column has one of the values."""
    quoted = ", ".join(f"'{value}'" for value in sorted(values))
    return f"{column} = {quoted}" if len(values) == 1 else f"{column} IN ({quoted})"


def draw_identical(_drawn: random.Random, _number: int, _point: Point) -> Statement:
    """All clients ask the same."""
    return q1(USUAL_DELTA)


def draw_dates(_drawn: random.Random, number: int, _point: Point) -> Statement:
    """61 clients ask for different days."""
    return q1(DELTAS[number * 37 % len(DELTAS)])


def draw_q3_2(drawn: random.Random, _number: int, _point: Point) -> Statement:
    """Random star queries, hardly ever two alike."""
    return q3_2(drawn)


def draw_mix(drawn: random.Random, number: int, _point: Point) -> Statement:
    """The templates in turn."""
    return (q1_1, q2_1, q3_2)[number % 3](drawn)


def draw_random(drawn: random.Random, _number: int, _point: Point) -> Statement:
    """Anything: scans of all lines, star queries of few and of many rows, now and then the same."""
    kind = drawn.randrange(5)
    if kind == 0:
        return q1(drawn.choice(DELTAS))
    if kind == 1:
        return q3_2_wide(drawn, drawn.randint(1, 13), drawn.randint(1, 14))
    return (q1_1, q2_1, q3_2)[kind - 2](drawn)


def draw_plans(drawn: random.Random, _number: int, point: Point) -> Statement:
    """One of so many statements."""
    return q3_2(random.Random(f"{SEED} plan {drawn.randrange(point.amounts[0])}"))  # noqa: S311 - no secret


def draw_wide(drawn: random.Random, _number: int, point: Point) -> Statement:
    """Star queries of a share of the lines."""
    return q3_2_wide(drawn, *point.amounts)


def draw_alone(_drawn: random.Random, _number: int, point: Point) -> Statement:
    """The query that the point is about."""
    if point.label == "Q1":
        return q1(USUAL_DELTA)
    return Statement(point.label, ssb.QUERIES[point.label])


def points(*clients: int) -> tuple[Point, ...]:
    """Points that differ in the number of clients alone."""
    return tuple(Point(count) for count in clients)


def share_of(customers: int, suppliers: int) -> str:
    """The share of lines that so many nations have."""
    return f"{customers * suppliers / len(NATIONS) ** 2:.1%}"


# Nations of customers and of suppliers: 0.2%, 1%, 10% and 29% of the lines.
SHARES = ((1, 1), (2, 3), (6, 10), (13, 14))
WORKLOADS = {
    "identical": Workload(
        "identical Q1 at once (figure 4.3)",
        points(1, 8, 64, 256),
        draw_identical,
        least_rounds=3,
        ways=(*USUAL_WAYS, FLIGHT),
    ),
    "dates": Workload(
        "Q1 of different dates at once", points(1, 8), draw_dates, least_rounds=3, ways=(*USUAL_WAYS, MEMORY)
    ),
    "q3.2": Workload(
        "random Q3.2, closed loop (4.8)",
        points(1, 8, 32, 256),
        draw_q3_2,
        turns=2,
        loop=2.0,
        ways=(ENGINE, MEMORY, DUCKDB, OFF, PAGES, STARS),
    ),
    "mix": Workload(
        "Q1.1, Q2.1, Q3.2, closed loop (4.15, 4.16)",
        points(1, 8, 32, 64, 256),
        draw_mix,
        turns=2,
        loop=2.0,
        ways=(*USUAL_WAYS, FLIGHT, FLIGHT_STARS),
    ),
    "random": Workload(
        "random mixes, two queries of each client",
        points(2, 8, 32),
        draw_random,
        turns=2,
        least_rounds=3,
        ways=(OFF, AGAIN, *LEVELS),
    ),
    "alone": Workload(
        "one query at a time",
        tuple(Point(1, name) for name in ("Q1", *ssb.QUERIES)),
        draw_alone,
        loop=0.15,
        least_rounds=7,
        ways=(OFF, AGAIN, *LEVELS, FLIGHT, DIRECT),
    ),
    "cold": Workload("Q1 of different dates at once, cold (4.12)", points(1, 8), draw_dates, is_cold=True),
    "cold q3.2": Workload("random Q3.2 at once, cold (4.9)", points(1, 8, 32), draw_q3_2, is_cold=True),
    "selectivity": Workload(
        "8 Q3.2 of a share of the lines at once (4.10)",
        tuple(Point(8, share_of(*nations), nations) for nations in SHARES),
        draw_wide,
        ways=(*USUAL_WAYS, MEMORY),
    ),
    "wide": Workload(
        "Q3.2 of 29% of the lines at once (4.11)",
        tuple(Point(clients, "", SHARES[-1]) for clients in (1, 8, 32, 64, 256)),
        draw_wide,
    ),
    "plans": Workload(
        "16 different Q3.2 at once (4.13)",
        tuple(Point(clients, "", (16,)) for clients in (1, 8, 32, 64, 256)),
        draw_plans,
    ),
    "similarity": Workload(
        "512 Q3.2 of so many plans at once (4.14)",
        tuple(Point(512, f"{plans} plans", (plans,)) for plans in (1, 128, 256, 512)),
        draw_plans,
    ),
}
# The others take longer, and are run by name.
USUAL = ("identical", "dates", "q3.2", "mix", "random", "alone", "cold")

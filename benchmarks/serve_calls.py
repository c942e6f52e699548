"""What each call of Flight SQL takes, beside the same statement in process: `make bench NAME=serve-calls`.

```text
nothing            a call whose answer the server has: what gRPC takes
Prepare            CreatePreparedStatement of a text that did not come before: parse, plan
GetFlightInfo      of that statement: the newest states of its tables
DoGet, first rows  the physical plan, and the first batch
DoGet, the rest    whatever comes after it
Close              ClosePreparedStatement
GetFlightInfo, new of a text that did not come before
```

One client makes each call for all runs before the next one, so that the CPU of the server is that of the call.
Behind these calls stand the whole statements in process, and as the driver of ADBC makes them.

The goal is about first rows: those of a statement through Flight, by the two calls of the protocol and by a cursor of
ADBC, beside those in process, in turn. The server shares plans as the session in process does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import measure
import pyarrow as pa
import sharing_goals
import ssb
from pyarrow import flight
from sharing import create_indexes
from sharing_engines import PLANS, open_lakemark, session_of
from sharing_flight import by_cursor, directly, open_flight
from sharing_worker import cpu_seconds
from suites import CACHE

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sharing_engines import Engine

    from lakemark import Session

STATEMENTS = {"SELECT 1": "SELECT 1", **{name: ssb.QUERIES[name] for name in ("Q1.1", "Q2.1", "Q3.2")}}
NAMESPACE = "type.googleapis.com/arrow.flight.protocol.sql."
MOST_RUNS = 500
# Of a field of protobuf with a length, beside its number.
WITH_LENGTH = 2
HERE, BY_CALLS, BY_CURSOR = "first rows in process", "first rows by two calls", "first rows by a cursor"
# By how much longer the first rows may take through Flight.
MOST_LONGER_MS = 2.0


def message(*fields: tuple[int, bytes]) -> bytes:
    """A message of protobuf whose fields have lengths."""
    return b"".join(number_of(number << 3 | WITH_LENGTH) + number_of(len(value)) + value for number, value in fields)


def number_of(value: int) -> bytes:
    """A number of protobuf."""
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def command(name: str, *fields: tuple[int, bytes]) -> bytes:
    """A command or a request of Flight SQL."""
    return message((1, f"{NAMESPACE}{name}".encode()), (2, message(*fields)))


def fields_of(encoded: bytes) -> dict[int, bytes]:
    """The fields of a message of protobuf, all of which have lengths."""
    found, place = {}, 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            part = encoded[place]
            place += 1
            value |= (part & 0x7F) << shift
            shift += 7
            if part < 0x80:
                return value

    while place < len(encoded):
        key, length = number(), number()
        if key & 7 != WITH_LENGTH:
            raise ValueError("the message has a field without a length")
        found[key >> 3] = encoded[place : place + length]
        place += length
    return found


@dataclass
class Step:
    """What calls took.

    Attributes:
        seconds: Of each call, as the client waits for it.
        cpu_seconds: Of the server or of the process, for all of them.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def summary(self) -> dict[str, float]:
        """The median of a call, and its CPU."""
        return {"ms": statistics.median(self.seconds) * 1e3, "cpu_ms": self.cpu_seconds / len(self.seconds) * 1e3}


def timed(process: int, run: Callable[[Any], Any], each: Iterable[Any]) -> tuple[list[Any], Step]:
    """Runs it for each; returns what came of it, and what that took."""
    step, given = Step(), []
    before = cpu_seconds(process)
    for one in each:
        began = time.perf_counter()
        given.append(run(one))
        step.seconds.append(time.perf_counter() - began)
    step.cpu_seconds = cpu_seconds(process) - before
    return given, step


class Calls:
    """A client that makes one call at a time."""

    def __init__(self, address: str) -> None:
        self._client = flight.connect(address)

    def info(self, asked: bytes) -> flight.Ticket:
        """GetFlightInfo."""
        return self._client.get_flight_info(flight.FlightDescriptor.for_command(asked)).endpoints[0].ticket

    def prepare(self, sql: str) -> bytes:
        """CreatePreparedStatement; returns its handle."""
        asked = command("ActionCreatePreparedStatementRequest", (1, sql.encode()))
        (result,) = self._client.do_action(flight.Action("CreatePreparedStatement", asked))
        return fields_of(fields_of(result.body.to_pybytes())[2])[1]

    def close(self, handle: bytes) -> None:
        """ClosePreparedStatement."""
        asked = command("ActionClosePreparedStatementRequest", (1, handle))
        list(self._client.do_action(flight.Action("ClosePreparedStatement", asked)))

    def first(self, ticket: flight.Ticket) -> flight.FlightStreamReader:
        """DoGet up to the first batch."""
        reader = self._client.do_get(ticket)
        # There may be none.
        with suppress(StopIteration):
            reader.read_chunk()
        return reader


def calls_of(server: Engine, sql: str, runs: int, series: str) -> dict[str, Step]:
    """What each call of a statement takes. Texts differ by a comment, as the server remembers those that came."""
    client, found = Calls(server.note), {}

    def step(name: str, run: Callable[[Any], Any], each: Iterable[Any]) -> list[Any]:
        given, found[name] = timed(server.process, run, each)
        return given

    step("nothing", lambda _: client.info(command("CommandGetTableTypes")), range(runs))
    handles = step("Prepare", client.prepare, [f"{sql} -- {series} {number}" for number in range(runs)])
    prepared = [command("CommandPreparedStatementQuery", (1, handle)) for handle in handles]
    tickets = step("GetFlightInfo", client.info, prepared)
    rest = Step()

    def rows(ticket: flight.Ticket) -> float:
        began = time.perf_counter()
        reader = client.first(ticket)
        first = time.perf_counter() - began
        reader.read_all()
        rest.seconds.append(time.perf_counter() - began - first)
        return first

    firsts, both = timed(server.process, rows, tickets)
    # The rows of a query come one after the other: the CPU of both stands beside the first.
    found["DoGet, first rows"] = Step(firsts, both.cpu_seconds)
    found["DoGet, the rest"] = rest
    step("Close", client.close, handles)
    texts = [f"{sql} -- {series} new {number}" for number in range(runs)]
    new = [command("CommandStatementQuery", (1, text.encode())) for text in texts]
    for ticket in step("GetFlightInfo, new", client.info, new):
        client.first(ticket).read_all()
    return found


def statements_of(server: Engine, local: Engine, sql: str, runs: int) -> dict[str, Step]:
    """What whole statements take, in process and as the driver of ADBC makes them."""
    from adbc_driver_flightsql import dbapi

    found = {}
    ask = local.client()
    ask(sql)
    _, found["in process"] = timed(os.getpid(), lambda _: ask(sql), range(runs))
    with dbapi.connect(server.note, autocommit=True) as connection, connection.cursor() as kept:

        def again(_: int) -> Any:  # noqa: ANN401 - a table of Arrow
            kept.execute(sql)
            return kept.fetch_arrow_table()

        ways = {
            "ADBC, a cursor for each": lambda _: by_cursor(connection, sql),
            "ADBC, a cursor for all": again,
            "ADBC, nothing prepared": lambda _: directly(connection, sql),
        }
        for name, run in ways.items():
            run(0)
            _, found[name] = timed(server.process, run, range(runs))
    _, found["ADBC, a connection for each"] = timed(server.process, lambda _: connected(server.note, sql), range(runs))
    return found


def first_rows_of(server: Engine, here: Session, sql: str, runs: int) -> dict[str, Step]:
    """What first rows of a statement take in process and through Flight, in turn, so that noise falls on all."""
    from adbc_driver_flightsql import dbapi

    found, client = {HERE: Step(), BY_CALLS: Step(), BY_CURSOR: Step()}, Calls(server.note)

    def in_process(text: str) -> float:
        return first_of(pa.RecordBatchReader.from_stream(here.sql(text)))

    def by_calls(text: str) -> float:
        reader = client.first(client.info(command("CommandStatementQuery", (1, text.encode()))))
        came = time.perf_counter()
        reader.cancel()
        return came

    with dbapi.connect(server.note, autocommit=True) as connection:

        def by_a_cursor(text: str) -> float:
            with connection.cursor() as cursor:
                cursor.execute(text)
                return first_of(cursor.fetch_record_batch())

        ways = {HERE: in_process, BY_CALLS: by_calls, BY_CURSOR: by_a_cursor}
        for turn in range(-1, runs):
            for name in measure.in_turn(list(ways), turn + 1):
                began = time.perf_counter()
                # Nobody has asked this text before.
                came = ways[name](f"{sql} -- first {turn} {name}")
                if turn >= 0:
                    found[name].seconds.append(came - began)
    return found


def first_of(reader: pa.RecordBatchReader) -> float:
    """Takes the first rows, of which there may be none; gives when they came."""
    with suppress(StopIteration):
        reader.read_next_batch()
    return time.perf_counter()


def goals_of(found: Mapping[str, Mapping[str, Step]]) -> list[dict[str, Any]]:
    """By how much longer first rows take through Flight at worst, beside what they may take."""
    goals = []
    for name in (BY_CALLS, BY_CURSOR):
        longer = {asked: steps[name].summary()["ms"] - steps[HERE].summary()["ms"] for asked, steps in found.items()}
        worst = max(longer, key=lambda asked: longer[asked])
        goals.append(
            {
                "what": f"{name}: ms longer than in process at worst ({worst})",
                "goal": f"<= {MOST_LONGER_MS:.2f}",
                "measured": longer[worst],
                "met": longer[worst] <= MOST_LONGER_MS,
            }
        )
    return goals


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws what each call takes of each statement, and its first rows beside those in process."""
    statements: dict[str, dict[str, dict[str, float]]] = result["statements"]
    figure, axes = plt.subplots(1, len(statements), figsize=(4.6 * len(statements), 5.2), squeeze=False)
    for part, (name, steps) in zip(axes[0], statements.items(), strict=True):
        part.barh(list(steps), [step["ms"] for step in steps.values()])
        part.invert_yaxis()
        part.axvline(steps[HERE]["ms"] + MOST_LONGER_MS, color="black", linewidth=0.8, label="goal of first rows")
        part.tick_params(axis="y", labelsize="x-small")
        part.set(title=name, xlabel="ms")
        part.legend(fontsize="x-small")
    figure.suptitle(f"Calls of a server, scale {result['scale']:g}")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def connected(address: str, sql: str) -> None:
    """A statement by a connection of its own."""
    from adbc_driver_flightsql import dbapi

    with dbapi.connect(address, autocommit=True) as connection:
        by_cursor(connection, sql)


def shown(found: dict[str, dict[str, Step]]) -> Sequence[Sequence[str]]:
    """A row for each call, with the milliseconds of a client and those of CPU."""

    def cell(step: Step) -> str:
        summary = step.summary()
        return f"{summary['ms']:.2f}, {summary['cpu_ms']:.2f}"

    steps = list(next(iter(found.values())))
    return [(name, *(cell(of[name]) for of in found.values())) for name in steps]


def main() -> None:
    """Generates, asks, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=200, help=f"how often each call is made, at most {MOST_RUNS}")
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    if given.runs > MOST_RUNS:
        parser.error(f"at most {MOST_RUNS} runs: the server remembers as many texts")
    star = CACHE / f"ssb-{given.scale:g}"
    ssb.generate(star, given.scale)
    tables = {name: str(star / name) for name in ssb.TABLES}
    create_indexes(tables)
    local, here, server = open_lakemark(tables, PLANS), session_of(tables, PLANS)[0], open_flight(tables, by_cursor)
    found: dict[str, dict[str, Step]] = {}
    try:
        for name, sql in STATEMENTS.items():
            # The first time fills what the server remembers of its tables.
            calls_of(server, sql, 2, "before")
            calls = calls_of(server, sql, given.runs, "measured")
            firsts = first_rows_of(server, here, sql, given.runs)
            found[name] = {**calls, **statements_of(server, local, sql, given.runs), **firsts}
    finally:
        server.close()
    measure.print_table(("ms, ms of CPU", *found), shown(found))
    goals = goals_of(found)
    measure.print_table(("what", "goal", "measured", ""), [sharing_goals.shown(goal) for goal in goals])
    result = {
        "benchmark": "serve-calls",
        "scale": given.scale,
        "runs": given.runs,
        "profile": os.environ.get("LAKEMARK_PROFILE", "dev"),
        "machine": measure.machine(),
        "statements": {name: {step: of[step].summary() for step in of} for name, of in found.items()},
        "goals": goals,
    }
    measure.publish(given.results, f"serve-calls-{given.scale:g}", result, plot)


if __name__ == "__main__":
    main()

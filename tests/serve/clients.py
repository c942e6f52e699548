"""Clients of a server, good ones and bad ones, for `test_clients.py`: each does one thing again and again.

A life is a server from its start to its end. Whoever talks to one that is killed hears errors, and goes on with the
next life. An error of a life that was not killed is a failure, unless the server says that it is busy, or that a
migration was faster.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions

from serving import CARRIERS, ROWS, Server, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb
    from adbc_driver_manager.dbapi import Connection

TOKEN = "0123456789abcdef" * 4
HEADER = DatabaseOptions.AUTHORIZATION_HEADER.value
# What a client may be told of a life that is over, or of one that it left.
FAILURES = (adbc_driver_manager.Error, pa.ArrowException, OSError)
# What a client is told whose statement took longer than a migration and the changes before it: it tries again.
MIGRATED = "rows were changed and migrated meanwhile"
# Rows that nobody reads in one go, and how many of them a client has that reads them all.
MANY = "SELECT value, repeat('x', 1000) AS x FROM generate_series(1, 1000000)"
MANY_ROWS = 1_000_000
# Connections of a server, and of a client that takes them all: no more too many than it has places to refuse them.
MOST_CONNECTIONS = 128
CROWD = MOST_CONNECTIONS + 20
# How long the server waits for a client that takes no rows, and how long one takes none. A client that takes its rows
# may have no core for a while, and is not to be stopped for that.
STALLED_SECONDS, STALLS_SECONDS = 4, 10
# What a client does over one connection.
ROUND = 20
PAIRS = 40

VANISHING = """
import sys
import adbc_driver_flightsql.dbapi as flight
url, header, token, statement = sys.argv[1:]
connection = flight.connect(url, db_kwargs={header: token}, autocommit=True)
cursor = connection.cursor()
cursor.execute(statement)
cursor.fetchone()
print("reads", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Life:
    """A server from its start to its end."""

    server: Server
    # Set before it is killed.
    killed: threading.Event = field(default_factory=threading.Event)


class Soak:
    """What all clients share."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self._life: Life | None = None
        self._changed = threading.Condition()

    def begin(self, life: Life) -> None:
        """Lets clients talk to another server."""
        with self._changed:
            self._life = life
            self._changed.notify_all()

    def life(self) -> Life | None:
        """The server that runs, as soon as there is one; none once the clients are to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self.stop.is_set() or (self._life and not self._life.killed.is_set()))
            return None if self.stop.is_set() else self._life

    def end(self) -> None:
        """Tells the clients to stop."""
        self.stop.set()
        with self._changed:
            self._changed.notify_all()

    def note(self, what: str) -> None:
        """Counts something that went as it should."""
        with self._changed:
            self.done[what] += 1

    def fail(self, what: str) -> None:
        """Keeps what went wrong, and ends the soak."""
        with self._changed:
            self.problems.append(what)
        self.end()


def connect(life: Life, token: str = TOKEN, **options: str) -> Connection:
    """A connection of its own."""
    given = {HEADER: f"Bearer {token}", **options}
    return adbc_driver_flightsql.dbapi.connect(life.server.url, db_kwargs=given, autocommit=True)


def rows(connection: Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall()


class Client(threading.Thread):
    """A client that does one thing again and again until it is told to stop."""

    def __init__(self, soak: Soak, seed: int) -> None:
        super().__init__(name=f"{type(self).__name__} {seed}", daemon=True)
        self.soak = soak
        self.seed = seed
        self.chance = random.Random(seed)  # noqa: S311 - no secret

    def run(self) -> None:
        try:
            while life := self.soak.life():
                self.meet(life)
        # Whatever it is, the soak is over and says so.
        except BaseException as error:  # noqa: BLE001
            self.soak.fail(f"{self.name}: {type(error).__name__}: {error}")

    def meet(self, life: Life) -> None:
        """Talks to a server, and goes on after an error that may be."""
        try:
            self.talk(life)
        except FAILURES as error:
            if life.killed.is_set():
                self.soak.note("killed")
            elif "the server is busy" in str(error):
                self.soak.note("busy")
                # It comes again later, as it is told. Where many are refused at a time, others hear nothing.
                life.killed.wait(0.1)
            elif MIGRATED in str(error):
                self.soak.note("migrated meanwhile")
            else:
                raise

    def round(self, life: Life) -> Iterator[int]:
        """As much as is done over one connection."""
        for number in range(ROUND):
            if self.soak.stop.is_set() or life.killed.is_set():
                return
            yield number

    def talk(self, life: Life) -> None:
        """Does it for a while."""
        raise NotImplementedError


class Reader(Client):
    """Asks for rows that never change; DuckDB says what is right."""

    STATEMENTS = (
        "SELECT {n} AS n, count(*) AS c FROM flights WHERE carrier = '{carrier}' AND number < {limit}",
        "SELECT {n} AS n, carrier, count(*) AS c, sum(delay) AS d, max(day) AS m FROM flights GROUP BY 2 ORDER BY 2",
        "SELECT {n} AS n, number, carrier, delay, day FROM flights WHERE number % 97 = {limit} % 97 ORDER BY number",
        "SELECT {n} AS n, a.number, b.day FROM flights a JOIN flights b ON a.number = b.number + {limit} ORDER BY 2",
        "SELECT {n} AS n, number FROM flights WHERE carrier IS NULL AND number < {limit} ORDER BY delay, number",
    )
    WITH_VALUES = (
        "SELECT {n} AS n, count(*) AS c, min(number) AS f FROM flights WHERE carrier = ? AND number < ?",
        "SELECT {n} AS n, number, day FROM flights WHERE carrier = ? AND number < ? ORDER BY number DESC",
    )

    def __init__(self, soak: Soak, seed: int, judge: duckdb.DuckDBPyConnection) -> None:
        super().__init__(soak, seed)
        self.judge = judge
        # Each question has a number, which its answer must have. That of every second one is 0, so that some are equal.
        self.asked = seed * 1_000_000

    def talk(self, life: Life) -> None:
        with connect(life) as connection:
            for number in self.round(life):
                self.asked += 1
                words = {
                    "n": self.asked * (number % 2),
                    "carrier": self.chance.choice(CARRIERS),
                    "limit": self.chance.choice((1, 7, 100, ROWS // 2, ROWS)),
                }
                values: tuple[Any, ...] = ()
                statement = self.chance.choice(self.STATEMENTS + self.WITH_VALUES)
                if statement in self.WITH_VALUES:
                    values = (words["carrier"], words["limit"])
                statement = statement.format(**words)
                found = rows(connection, statement, *values)
                expected = self.judge.execute(statement, values or None).fetchall()
                assert found == expected, f"{statement} {values}: {found}, and DuckDB says {expected}"
                self.soak.note("answers")


class Writer(Client):
    """Changes pairs of rows that are its own, and looks whether they are what it was told.

    The values of a pair have the sum zero, and each statement changes both rows of it. Whether a change was made whose
    answer did not come is not known until the next look.
    """

    def __init__(self, soak: Soak, seed: int) -> None:
        super().__init__(soak, seed)
        self.first = seed * PAIRS
        self.pairs = range(self.first, self.first + PAIRS)
        # The value of each pair that there is.
        self.known: dict[int, int] = {}
        # What pairs may have become by a change that was not answered.
        self.open: dict[int, int | None] = {}

    def talk(self, life: Life) -> None:
        with connect(life) as connection:
            self.look(connection)
            for number in self.round(life):
                if number % 5 == 4:
                    self.turn_many(connection)
                else:
                    self.change_one(connection)
                if number % 7 == 0:
                    self.look(connection)
            self.look(connection)

    def look(self, connection: Connection) -> None:
        """Every change that was answered is there, and of the others each is there as a whole or not at all."""
        mine = f"pair >= {self.first} AND pair < {self.first + PAIRS}"
        found = dict(rows(connection, f"SELECT id, value FROM ledger WHERE {mine}"))
        values = {pair: found.pop(2 * pair) for pair in self.pairs if 2 * pair in found}
        others = {pair: -found.pop(2 * pair + 1) for pair in self.pairs if 2 * pair + 1 in found}
        assert (values, found) == (others, {}), f"half of a change: {values}, {others}"
        made = [values.get(pair) == value for pair, value in self.open.items()]
        assert made == sorted(made, reverse=True), f"of changes in a row, some were left out: {self.open}, {values}"
        for pair, value in self.open.items():
            if values.get(pair) == value:
                self.believe(pair, value)
        self.open.clear()
        assert values == self.known, f"{values} is there, and {self.known} was acknowledged"
        self.soak.note("looks")

    def believe(self, pair: int, value: int | None) -> None:
        if value is None:
            self.known.pop(pair, None)
        else:
            self.known[pair] = value

    def change_one(self, connection: Connection) -> None:
        pair, value = self.chance.choice(self.pairs), self.chance.randrange(1, 1_000_000)
        if pair not in self.known:
            statement = f"INSERT INTO ledger VALUES ({2 * pair}, {pair}, {value}), ({2 * pair + 1}, {pair}, {-value})"
            new: int | None = value
        elif self.chance.random() < 0.3:
            statement, new = f"DELETE FROM ledger WHERE pair = {pair}", None
        else:
            case = f"CASE WHEN id = {2 * pair} THEN {value} ELSE {-value} END"
            statement, new = f"UPDATE ledger SET value = {case} WHERE pair = {pair}", value
        self.open[pair] = new
        try:
            changed = rows(connection, statement)
        except FAILURES as error:
            if MIGRATED in str(error):
                # Nothing was written, and the next look sees whether that is true.
                self.open.clear()
            raise
        assert changed == [(2,)], f"{statement}: {changed}"
        self.acknowledge()

    def turn_many(self, connection: Connection) -> None:
        """Changes several pairs by one statement, with a row of parameters for each."""
        chosen = self.chance.sample(sorted(self.known), min(4, len(self.known)))
        if not chosen:
            return
        self.open.update({pair: -self.known[pair] for pair in chosen})
        with connection.cursor() as cursor:
            cursor.executemany("UPDATE ledger SET value = -value WHERE pair = ?", [(pair,) for pair in chosen])
        self.acknowledge()

    def acknowledge(self) -> None:
        """What was asked for is made, and stays."""
        for pair, value in self.open.items():
            self.believe(pair, value)
        self.open.clear()
        self.soak.note("changes")


class Auditor(Client):
    """Counts all rows that change meanwhile: whatever it sees is a state between two changes."""

    def talk(self, life: Life) -> None:
        with connect(life) as connection:
            for _ in self.round(life):
                ((total, odd),) = rows(connection, "SELECT coalesce(sum(value), 0), count(*) % 2 FROM ledger")
                assert (total, odd) == (0, 0), f"the values have the sum {total}: half of a change was seen"
                self.soak.note("audits")


class Vanishing(Client):
    """A process that is killed while it reads."""

    def talk(self, life: Life) -> None:
        command = [sys.executable, "-c", VANISHING, life.server.url, HEADER, f"Bearer {TOKEN}", MANY]
        with subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said = process.stdout.readline()
            process.kill()
            if said != "reads\n":
                raise OSError(process.stderr.read())
            self.soak.note("vanished")


class Stalling(Client):
    """Takes no more rows for a while: it gets all of them, or hears that it was too slow."""

    def talk(self, life: Life) -> None:
        with connect(life) as connection, connection.cursor() as cursor:
            cursor.execute(MANY)
            reader = cursor.fetch_record_batch()
            taken = reader.read_next_batch().num_rows
            life.killed.wait(STALLS_SECONDS)
            try:
                taken += sum(batch.num_rows for batch in reader)
            except FAILURES as error:
                if "nobody took its rows" not in str(error):
                    raise
                self.soak.note("stalled")
            else:
                assert taken == MANY_ROWS, f"{taken} rows came, and no error"


class Shouting(Client):
    """Sends 16 MiB of SQL, and is refused by the length."""

    def talk(self, life: Life) -> None:
        # The driver itself sends no more than 16 MiB unless it is told to.
        with connect(life, **{DatabaseOptions.WITH_MAX_MSG_SIZE.value: str(64 << 20)}) as connection:
            with pytest.raises(adbc_driver_manager.Error) as caught:
                rows(connection, f"SELECT '{'x' * (16 << 20)}'")
            if "are allowed" not in str(caught.value):
                raise caught.value
            self.soak.note("refused by length")
            assert rows(connection, "SELECT 1") == [(1,)]
        self.soak.stop.wait(0.1)


class Intruding(Client):
    """Has no token, or a wrong one."""

    def talk(self, life: Life) -> None:
        wrong = self.chance.choice(("", "wrong", TOKEN[:-1], TOKEN + "0", TOKEN[::-1]))
        statement = self.chance.choice(("SELECT 1", "DELETE FROM ledger"))
        # The driver may ask before the statement does.
        with pytest.raises(adbc_driver_manager.Error) as caught, connect(life, wrong) as connection:
            rows(connection, statement)
        if "token is missing" not in str(caught.value):
            raise caught.value
        self.soak.note("refused by token")
        self.soak.stop.wait(0.05)


class Crowding(Client):
    """Takes all connections for a while and says nothing: others hear that there are too many."""

    def talk(self, life: Life) -> None:
        with ExitStack() as crowd:
            for _ in range(CROWD):
                crowd.enter_context(socket.create_connection(("127.0.0.1", life.server.port)))
            try:
                with connect(life) as connection:
                    rows(connection, "SELECT 1")
            except FAILURES as error:
                if f"there are {MOST_CONNECTIONS} connections already" not in str(error):
                    raise
                self.soak.note("refused by crowd")
        # The others come in between.
        self.soak.stop.wait(2)


class Repeating(Client):
    """Reads the rows of a plan twice, or never: they come once."""

    def talk(self, life: Life) -> None:
        with connect(life) as connection:
            for number in self.round(life):
                with connection.cursor() as cursor:
                    (plan,), _ = cursor.adbc_execute_partitions(f"SELECT {number} AS n FROM flights LIMIT 1")
                if number % 4 == 0:
                    continue
                assert self.rows_of(connection, plan) == [(number,)]
                with pytest.raises(FAILURES) as caught:
                    self.rows_of(connection, plan)
                if "the handle is not known" not in str(caught.value):
                    raise caught.value
                self.soak.note("refused by handle")

    @staticmethod
    def rows_of(connection: Connection, plan: bytes) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.adbc_read_partition(plan)
            return cursor.fetchall()

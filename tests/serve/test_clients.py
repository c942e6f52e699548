"""Many clients at once, good and bad, of a server that is killed meanwhile: no answer is wrong, and no change is lost.

`LAKEMARK_SERVE_SECONDS` and `LAKEMARK_SERVE_QUERIES` say how much of it: `make stress NAME=serve`.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import re
import signal
import statistics
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakemark
from clients import (
    FAILURES,
    MOST_CONNECTIONS,
    PAIRS,
    STALLED_SECONDS,
    TOKEN,
    Auditor,
    Client,
    Crowding,
    Intruding,
    Life,
    Reader,
    Repeating,
    Shouting,
    Soak,
    Stalling,
    Vanishing,
    Writer,
    connect,
    rows,
)
from serving import CARRIERS, PATIENCE, ROWS, Server, serve, write_flights

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = float(os.environ.get("LAKEMARK_SERVE_SECONDS", "6"))
QUERIES = int(os.environ.get("LAKEMARK_SERVE_QUERIES", "1000"))
CONNECTIONS = 64
RUNNING = 4
WRITERS = 3
# The last life has half of the time, and those that are killed share the other half.
KILLS = max(1, min(20, int(SECONDS / 20)))
# The pool of all statements, and what a process may have in all: messages of 16 MiB, and what the allocator keeps.
POOL = 256 << 20
MOST_MEMORY = 1536 << 20
# Lives that are shorter say nothing of what grows.
LONG_LIFE = 60

CONFIGURATION = """
[serve]
http = "127.0.0.1:0"
token_file = "{folder}/tokens"
[tables]
flights = "{folder}/flights"
ledger = "{folder}/ledger"
[serve.limits]
connections = {connections}
running = {running}
waiting = 64
stalled_seconds = {stalled}
plan_seconds = 20
memory_bytes = {pool}
"""


def write_ledger(folder: Path) -> None:
    """A table of pairs of rows, of which there are none that a writer has."""
    folder.mkdir()
    start = WRITERS * PAIRS
    pairs = [pair for pair in range(start, start + 500) for _ in range(2)]
    table = pa.table(
        {
            "id": pa.array(range(2 * start, 2 * start + len(pairs)), pa.int64()),
            "pair": pa.array(pairs, pa.int64()),
            "value": pa.array([pair * (1, -1)[place % 2] for place, pair in enumerate(pairs)], pa.int64()),
        }
    )
    pq.write_table(table, folder / "part-0.parquet", row_group_size=100)
    lakemark.Table(folder).declare_key("id", progress=False)


def configured(folder: Path) -> Path:
    """The configuration of a server over both tables."""
    write_flights(folder / "flights")
    write_flights(folder / "flights", first=ROWS)
    lakemark.Table(folder / "flights").create_index("carrier", progress=False)
    write_ledger(folder / "ledger")
    tokens = folder / "tokens"
    tokens.write_text(f"ann {TOKEN}\n")
    tokens.chmod(0o600)
    file = folder / "serve.toml"
    limits = {"pool": POOL, "running": RUNNING, "connections": MOST_CONNECTIONS, "stalled": STALLED_SECONDS}
    file.write_text(CONFIGURATION.format(folder=folder, **limits))
    return file


def judge_of(folder: Path) -> duckdb.DuckDBPyConnection:
    judge = duckdb.connect()
    judge.execute(f"CREATE VIEW flights AS SELECT * FROM read_parquet('{folder}/flights/*.parquet')")
    return judge


def counter(page: str, name: str) -> int:
    """A counter of the server's own."""
    with urllib.request.urlopen(f"{page}metrics", timeout=PATIENCE) as answer:  # noqa: S310 - our own server
        found = re.search(rf"^{name} (\d+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, name
    return int(found.group(1))


def memory(server: Server) -> int:
    """Bytes of memory that its process has."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found.group(1)) << 10


def watch(soak: Soak, life: Life, seconds: float) -> Iterator[int]:
    """The memory of a server, again and again until its time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not soak.stop.is_set():
        yield memory(life.server)
        time.sleep(0.2)


def upkeep(ledger: lakemark.Table, number: int) -> None:
    """What an operator does beside the server."""
    if number % 10 == 3:
        ledger.flush()
    elif number % 25 == 7:
        ledger.migrate(progress=False)


def check_memory(samples: list[int], seconds: float) -> None:
    """It is bounded, and that of a long life does not grow any more after a quarter of it."""
    assert max(samples) < MOST_MEMORY, f"{max(samples) >> 20} MiB"
    if seconds >= LONG_LIFE:
        quarter = len(samples) // 4
        early, late = (statistics.median(samples[start : start + quarter]) for start in (quarter, 3 * quarter))
        assert late < 1.2 * early + (64 << 20), f"from {early / 2**20:.0f} to {late / 2**20:.0f} MiB"


def check_rest(life: Life, page: str) -> None:
    """Nobody keeps a turn once all clients are gone."""
    deadline = time.monotonic() + PATIENCE
    while counter(page, "lakemark_statements_running") or counter(page, "lakemark_statements_waiting"):
        assert time.monotonic() < deadline, "a statement runs for nobody"
        time.sleep(0.1)
    while not is_served(life):
        assert time.monotonic() < deadline, "the connections of the crowd stay"
        time.sleep(0.1)


def is_served(life: Life) -> bool:
    """Whether a query is answered; it is not as long as the server did not hear that the crowd went away."""
    try:
        with connect(life) as connection:
            assert rows(connection, "SELECT count(*) FROM flights") == [(2 * ROWS,)]
    except FAILURES as error:
        if "connections already" not in str(error):
            raise
        return False
    return True


def check_ledger(life: Life, ledger: Path, writers: list[Writer]) -> None:
    """What is there in the end is what was acknowledged, for the server, for other programs and for DuckDB."""
    with connect(life) as connection:
        for writer in writers:
            writer.look(connection)
        # Nobody publishes: the file of the folder is what it was.
        original = pq.read_table(ledger / "part-0.parquet")
        known = [(pair, value) for writer in writers for pair, value in writer.known.items()]
        made = pa.table(
            {
                "id": pa.array([2 * pair + side for pair, _ in known for side in range(2)], pa.int64()),
                "pair": pa.array([pair for pair, _ in known for _ in range(2)], pa.int64()),
                "value": pa.array([value * sign for _, value in known for sign in (1, -1)], pa.int64()),
            }
        )
        judge = duckdb.connect()
        judge.register("ledger", pa.concat_tables([original, made]))
        for statement in (
            "SELECT id, pair, value FROM ledger ORDER BY id",
            "SELECT pair % 10 AS p, count(*) AS n, sum(abs(value)) AS v FROM ledger GROUP BY 1 ORDER BY 1",
        ):
            assert rows(connection, statement) == judge.execute(statement).fetchall()
    assert lakemark.Table(ledger).count() == original.num_rows + made.num_rows


def begin(soak: Soak, judge: duckdb.DuckDBPyConnection) -> list[Client]:
    """Clients of every sort; those that change rows are the first."""
    seeds = itertools.count(WRITERS)
    clients: list[Client] = [Writer(soak, seed) for seed in range(WRITERS)]
    clients += [Reader(soak, next(seeds), judge.cursor()) for _ in range(4)]
    # More of those that stall than there are turns.
    sorts = (Auditor, Vanishing, *[Stalling] * (RUNNING + 1), Shouting, Intruding, Crowding, Repeating)
    clients += [sort(soak, next(seeds)) for sort in sorts]
    for client in clients:
        client.start()
    return clients


EVERYTHING = {
    "answers",
    "changes",
    "looks",
    "audits",
    "vanished",
    "stalled",
    "refused by length",
    "refused by token",
    "refused by handle",
    "refused by crowd",
    "killed",
}


def test_clients_of_every_sort_get_right_answers_and_no_acknowledged_change_is_lost(tmp_path: Path) -> None:
    configuration, soak = configured(tmp_path), Soak()
    ledger = lakemark.Table(tmp_path / "ledger")
    clients = begin(soak, judge_of(tmp_path))
    writers = [client for client in clients if isinstance(client, Writer)]
    peaks = []
    try:
        for life_number in range(KILLS + 1):
            is_last = life_number == KILLS
            seconds = SECONDS / 2 / (1 if is_last else KILLS)
            with serve("--config", configuration) as server:
                page, life = server.page(), Life(server)
                soak.begin(life)
                samples = []
                for number, held in enumerate(watch(soak, life, seconds)):
                    samples.append(held)
                    upkeep(ledger, number)
                assert soak.problems == []
                check_memory(samples, seconds)
                peaks.append(max(samples))
                if not is_last:
                    life.killed.set()
                    server.end(signal.SIGKILL)
                    continue
                # On a machine that is busy some sorts had no turn yet.
                deadline = time.monotonic() + PATIENCE
                while not soak.stop.is_set() and EVERYTHING - soak.done.keys():
                    assert time.monotonic() < deadline, f"never: {EVERYTHING - soak.done.keys()}"
                    time.sleep(0.1)
                soak.end()
                for client in clients:
                    client.join(timeout=PATIENCE)
                assert soak.problems == []
                assert [client.name for client in clients if client.is_alive()] == []
                check_rest(life, page)
                check_ledger(life, tmp_path / "ledger", writers)
                assert server.end() == 0
    finally:
        soak.end()
    print(f"{SECONDS:.0f} s, {KILLS} kills, {max(peaks) >> 20} MiB: {dict(soak.done)}")  # noqa: T201


def test_short_queries_over_many_connections_are_each_answered_once(tmp_path: Path) -> None:
    with serve("--config", configured(tmp_path)) as server:
        page, life = server.page(), Life(server)

        def ask(connection_number: int) -> int:
            answered = 0
            with connect(life) as connection:
                for number in range(connection_number, QUERIES, CONNECTIONS):
                    # Each has a number, so that no other answer is taken for its own.
                    statement = f"SELECT {number} AS n, carrier FROM flights WHERE number = {number % ROWS}"
                    carrier = CARRIERS[number % ROWS % 5] if number % ROWS % 11 else None
                    assert rows(connection, statement) == [(number, carrier)]
                    answered += 1
            return answered

        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            start, samples = time.monotonic(), [memory(server)]
            asking = [pool.submit(ask, number) for number in range(CONNECTIONS)]
            while concurrent.futures.wait(asking, timeout=0.2).not_done:
                samples.append(memory(server))
            answered = sum(asked.result() for asked in asking)
            seconds = time.monotonic() - start
        assert answered == QUERIES
        check_memory(samples, seconds)
        assert counter(page, "lakemark_statements_total") == QUERIES
        assert counter(page, "lakemark_statements_refused_total") == 0
        assert server.end() == 0
    print(f"{QUERIES} queries over {CONNECTIONS} connections: {QUERIES / seconds:.0f} a second")  # noqa: T201

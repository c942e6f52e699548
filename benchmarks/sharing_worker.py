"""The process of one way of the sharing benchmark: reads orders, a line of JSON each, and prints what they cost.

```text
python sharing_worker.py WAY '{"lineitem": "…/lineitem", …}'
{"ready": true, "note": ""}                             or {"refused": "why"}
> {"workload": "mix", "point": 3, "turn": 0, "seconds": 1.0}
{"queries": 81, "cpu_seconds": 1.9, …, "answers": [["SELECT …", [[1993, 17.0], …]], …]}
```

Every answer is looked at after the clock has stopped: those to one text have to be equal, and are sent once.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import answers
import closed_loop
from sharing_engines import NotHereError, open_way
from sharing_queries import WORKLOADS, statement

if TYPE_CHECKING:
    from collections import Counter

    from sharing_engines import Engine

    Rows = Counter[tuple[Any, ...]]

TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name of the command.
USER_TICKS, SYSTEM_TICKS = 11, 12


def cpu_seconds(process: int) -> float:
    """User and system time of all threads of a process."""
    if process == os.getpid():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) / TICKS


def bytes_read(process: int) -> dict[str, int]:
    """Bytes that a process has read: from files, and of these from disk."""
    lines = Path(f"/proc/{process}/io").read_text(encoding="ascii").splitlines()
    counted = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return {"read_bytes": counted["rchar"], "disk_bytes": counted["read_bytes"]}


class Worker:
    """An engine, and what it has answered so far."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clients: list[closed_loop.Ask] = []
        self._answered: dict[str, Rows] = {}

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Lets the clients of a point ask; returns what that cost and what is answered for the first time."""
        workload = WORKLOADS[order["workload"]]
        point = workload.points[order["point"]]
        while len(self._clients) < point.clients:
            self._clients.append(self._engine.client())

        def draw(client: int, turn: int) -> str:
            return statement(order["workload"], point, client, order["turn"] + turn).sql

        process = self._engine.process
        before, cpu, own = bytes_read(process), cpu_seconds(process), cpu_seconds(os.getpid())
        clients = self._clients[: point.clients]
        asked = closed_loop.ask_at_once(clients, draw, workload.least_turns(point), order["seconds"])
        cost = {"cpu_seconds": cpu_seconds(process) - cpu, "client_cpu_seconds": cpu_seconds(os.getpid()) - own}
        read = {name: count - before[name] for name, count in bytes_read(process).items()}
        return {**asked.summary(), **cost, **read, "answers": self._first_answers(asked)}

    def _first_answers(self, asked: closed_loop.Asked) -> list[tuple[str, list[list[Any]]]]:
        """Compares answers to texts that were answered before, and returns the others."""
        first = []
        for text, answer in asked.answers:
            rows = answers.rows_of(answer)
            known = self._answered.get(text)
            if known is None:
                self._answered[text] = rows
                first.append((text, answers.plain_rows(rows)))
            elif known != rows and not answers.is_close(known, rows):
                raise AssertionError(f"two answers, {sorted(known.elements())} and {sorted(rows.elements())}: {text}")
        return first


def serve(way: str, tables: dict[str, str], out: IO[str]) -> None:
    """Opens a way and carries out orders until there are no more."""

    def say(**values: Any) -> None:  # noqa: ANN401 - whatever JSON has
        print(json.dumps(values), file=out, flush=True)

    try:
        engine = open_way(way, tables)
    except NotHereError as refused:
        say(refused=str(refused))
        return
    try:
        say(ready=True, note=engine.note)
        worker = Worker(engine)
        for line in sys.stdin:
            say(**worker.run(json.loads(line)))
    finally:
        engine.close()


def main() -> None:
    """Runs one way; what libraries print goes to the errors, as the output is for the benchmark."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.argv[1], json.loads(sys.argv[2]), out)


if __name__ == "__main__":
    main()

"""A server as its users run it: the command as a process of its own, over tables of flights."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Seconds: longer than anything here takes on a machine that is busy.
PATIENCE = 600
PAGE = "the page is at "
ROWS = 1000
CARRIERS = ("AA", "B6", "DL", "UA", "WN")


def write_flights(folder: Path, first: int = 0, rows: int = ROWS) -> None:
    """A file of `rows` flights, numbered from `first` on."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(first, first + rows)
    table = pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "carrier": pa.array([CARRIERS[n % 5] if n % 11 else None for n in numbers], pa.string()),
            "delay": pa.array([n * 37 % 101 / 4 for n in numbers], pa.float64()),
            "day": pa.array([n % 365 for n in numbers], pa.int32()).cast(pa.date32()),
        }
    )
    pq.write_table(table, folder / f"part-{first}.parquet", row_group_size=200, write_page_index=True)


def environment() -> dict[str, str]:
    """That of the tests, by which a process finds the package."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class Server:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.first_line = process.stdout.readline().rstrip("\n")
        self.url = self.first_line.removeprefix("listening on ")
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.put(line)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def rest(self) -> list[str]:
        """The lines of the log that nobody has taken, of a server that ends by itself."""
        self._reader.join(timeout=PATIENCE)
        return [self.lines.get() for _ in range(self.lines.qsize())]

    def close(self) -> None:
        """Closes the pipes of a process that has ended."""
        self._reader.join(timeout=PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def page(self) -> str:
        """The address of its page. Warnings may come before it, as of what a server left that was killed."""
        others: list[str] = []
        while not (line := self.lines.get(timeout=PATIENCE)).startswith(PAGE):
            others.append(line)
        for other in others:
            self.lines.put(other)
        return line.removeprefix(PAGE).strip()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends it by a signal; gives its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)


@contextmanager
def serve(*arguments: str | Path) -> Iterator[Server]:
    """Runs `lakemark serve` on a port that the system chooses."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakemark", "serve", "--listen", "0", *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Server(process)
    try:
        assert server.url.startswith("grpc"), "it did not begin: " + "".join(server.rest())
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=PATIENCE)
        server.close()


def fails(*arguments: str | Path) -> tuple[int, str]:
    """The exit code and the error of a server that does not begin."""
    done = subprocess.run(
        [sys.executable, "-m", "lakemark", "serve", *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr

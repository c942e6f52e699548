"""A process beside a benchmark that changes a table until it is stopped, and how fast it was."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import measure


class Writer:
    """A process that changes a table until it is stopped."""

    def __init__(self, code: str, *arguments: object) -> None:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=measure.environment())
        self._batches = 0
        self._next()
        self._began = time.perf_counter()
        self._reader = threading.Thread(target=self._count)
        self._reader.start()

    def _next(self) -> str:
        return self._process.stdout.readline() if self._process.stdout else ""

    def _count(self) -> None:
        while self._next():
            self._batches += 1

    def wait(self, seconds: float) -> None:
        """Waits so long, and until a batch is done or the process ends."""
        time.sleep(seconds)
        while not self._batches and self._process.poll() is None:
            time.sleep(0.1)

    def stop(self) -> float:
        """Stops it; returns the batches a second."""
        took = time.perf_counter() - self._began
        if self._process.poll() is not None:
            raise AssertionError(f"the writer ended: {self._process.returncode}")
        self._process.kill()
        self._process.wait()
        self._reader.join()
        return self._batches / took

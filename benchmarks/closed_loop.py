"""Clients that ask at the same time, each a thread that waits for its answer before it asks again."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Ask = Callable[[str], Any]


@dataclass
class Asked:
    """What clients were answered.

    Attributes:
        wall_seconds: From the first question to the last answer.
        latencies: Seconds of each question.
        answers: Each question with its answer.
    """

    wall_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answers: list[tuple[str, Any]] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """How many answers, how fast, and how long each took."""
        ordered = sorted(self.latencies)
        return {
            "queries": len(ordered),
            "wall_seconds": self.wall_seconds,
            "queries_per_second": len(ordered) / self.wall_seconds,
            "latency_ms": statistics.median(ordered) * 1e3,
            "latency_ms_p95": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)] * 1e3,
        }


class _Clients:
    """Threads that begin together, and end when the time is over or one of them fails."""

    def __init__(self, asks: Sequence[Ask], draw: Callable[[int, int], str], turns: int, seconds: float) -> None:
        self._asks, self._draw, self._turns, self._seconds = asks, draw, turns, seconds
        self._start = threading.Barrier(len(asks) + 1)
        self._ends = 0.0
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._asked = Asked()

    def run(self) -> Asked:
        """Runs them all; the first error is raised."""
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(len(self._asks))]
        for thread in threads:
            thread.start()
        began = time.perf_counter()
        self._ends = began + self._seconds
        self._start.wait()
        for thread in threads:
            thread.join()
        self._asked.wall_seconds = time.perf_counter() - began
        if self._error is not None:
            raise self._error
        return self._asked

    def _client(self, number: int) -> None:
        latencies, answers, turn = [], [], 0
        self._start.wait()
        try:
            while self._error is None and (turn < self._turns or time.perf_counter() < self._ends):
                text = self._draw(number, turn)
                asked = time.perf_counter()
                answers.append((text, self._asks[number](text)))
                latencies.append(time.perf_counter() - asked)
                turn += 1
        except Exception as error:  # noqa: BLE001 - raised again where it is seen
            with self._lock:
                self._error = self._error or error
        with self._lock:
            self._asked.latencies += latencies
            self._asked.answers += answers


def ask_at_once(asks: Sequence[Ask], draw: Callable[[int, int], str], turns: int, seconds: float = 0.0) -> Asked:
    """Each client asks what is drawn for its number and turn: so often at least, and until the seconds have gone."""
    return _Clients(asks, draw, turns, seconds).run()

"""How far a call is: whoever is told, and the bar that is drawn on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Progress", "ProgressBar", "shown"]

#: What callers give as `progress`: whether to draw a bar, or a function that takes what is done and the total.
Progress = bool | Callable[[int, int], None]

_WIDTH = 30
_REDRAW_SECONDS = 0.1


def shown(label: str, progress: Progress) -> AbstractContextManager[Callable[[int, int], None] | None]:
    """Whoever is given the progress: a bar, the caller's function, or nobody."""
    if callable(progress):
        return nullcontext(progress)
    return ProgressBar(label) if progress else nullcontext(None)


class ProgressBar:
    """Draws how far a build is.

    On a terminal one line is redrawn in place; elsewhere (a log file, a pipe) one line is written at the end.

    >>> import io
    >>> out = io.StringIO()
    >>> with ProgressBar("build", out) as bar:
    ...     bar(0, 200)
    ...     bar(200, 200)
    >>> out.getvalue()
    'build: 200 of 200 rows in ...'
    """

    def __init__(self, label: str, out: TextIO | None = None, unit: str = "rows") -> None:
        self._label = label
        self._unit = unit
        self._out = sys.stderr if out is None else out
        self._in_place = self._out.isatty()
        self._began = time.monotonic()
        self._drawn: float | None = None
        self._state = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Takes note of `done` rows, or whatever else is counted, out of `total`."""
        self._state = (done, total)
        now = time.monotonic()
        if self._in_place and total and (self._drawn is None or now - self._drawn >= _REDRAW_SECONDS):
            self._drawn = now
            self._draw()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        done, total = self._state
        if not total:
            return
        if self._in_place:
            self._draw()
            self._out.write("\n")
        else:
            seconds = time.monotonic() - self._began
            self._out.write(f"{self._label}: {done:,} of {total:,} {self._unit} in {seconds:.1f} s\n")
        self._out.flush()

    def _draw(self) -> None:
        done, total = self._state
        filled = min(_WIDTH, _WIDTH * done // total)
        picture = "█" * filled + "░" * (_WIDTH - filled)
        seconds = max(time.monotonic() - self._began, 1e-9)
        speed = done / seconds
        self._out.write(f"\r{self._label} {picture} {100 * done // total:3d}% {done:,} {self._unit}, {speed:,.0f}/s ")
        self._out.flush()

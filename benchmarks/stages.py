"""A long benchmark in stages: how far it is, and what it keeps in case that it is stopped."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Told which share of a stage is done.
Tell: TypeAlias = "Callable[[float], None]"

WIDTH = 30


class Stages:
    """Stages in their order. What each of them measured is written down at once.

    A run of the same things that was stopped goes on with the first stage that it did not end. `of` is what a run is
    of: if it is not the same, nothing is taken from the file.
    """

    def __init__(self, path: Path, of: dict[str, Any], names: Sequence[str]) -> None:
        self._path, self._of, self._names = path, as_read(of), list(names)
        self._began = time.perf_counter()
        self._shown = ""
        self._done: dict[str, Any] = self._known()

    def _known(self) -> dict[str, Any]:
        try:
            known = json.loads(self._path.read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return dict(known["stages"]) if known["of"] == self._of else {}

    def run(self, name: str, work: Callable[[Tell], Any]) -> Any:  # noqa: ANN401 - whatever the stage measures
        """What a stage measures: now, or in a run before."""
        if name not in self._done:
            self._show(name, 0.0)
            start = time.perf_counter()
            result = as_read(work(lambda share: self._show(name, share)))
            self._done[name] = {"seconds": time.perf_counter() - start, "result": result}
            self._keep()
            self._show(name, 1.0)
        return self._done[name]["result"]

    @property
    def seconds(self) -> dict[str, float]:
        """How long each stage took that was run."""
        return {name: self._done[name]["seconds"] for name in self._names if name in self._done}

    def forget(self) -> None:
        """Removes what was kept: the run has ended."""
        self._path.unlink(missing_ok=True)

    def _keep(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps({"of": self._of, "stages": self._done}), encoding="utf-8")
        written.replace(self._path)

    def _show(self, name: str, share: float) -> None:
        place = self._names.index(name) + share
        filled = int(WIDTH * place / len(self._names))
        bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {time.perf_counter() - self._began:5.0f} s  {name}"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{bar}", end="\n" if place == len(self._names) else "", file=sys.stderr, flush=True)
        elif name != self._shown:
            print(bar, file=sys.stderr, flush=True)
        self._shown = name


def as_read(result: Any) -> Any:  # noqa: ANN401 - any JSON
    """A result as it is when it is read again: a run that was stopped has the same."""
    return json.loads(json.dumps(result))

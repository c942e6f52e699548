"""The SQL shell at a terminal: what is typed, also ahead, is completed, run and remembered; errors have their place."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A shell that says nothing for so long is taken for stuck.
PATIENCE = 120.0


class Terminal:
    """A shell that takes this process for somebody at a terminal."""

    def __init__(self, home: Path) -> None:
        self.ours, theirs = pty.openpty()
        settings = {"HOME": str(home), "TERM": "xterm", "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakemark"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **settings},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def types(self, *lines: str) -> None:
        """Types lines, and presses Enter after each; they arrive at once."""
        os.write(self.ours, "".join(f"{line}\r" for line in lines).encode())

    def shows(self, text: str) -> None:
        """Waits until a text is shown, and forgets what was shown up to its end."""
        until = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], max(until - time.monotonic(), 0))
            assert ready, self.seen
            self.seen += os.read(self.ours, 4096).decode(errors="replace")
        self.seen = self.seen.split(text, 1)[1]

    def end(self) -> None:
        """Ends the shell, if it is still there."""
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.end()


def test_a_session_at_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.shows("\\q to leave")
    terminal.types("CREATE TABLE t AS SELECT 7 AS carrier, 'never typed' AS note;")
    # The end of a paste is no longer looked for: the line was taken, and what is typed now waits for the next prompt.
    terminal.shows("[?2004l")
    terminal.types("SELECT note FROM t WHERE carrier = 7;")
    terminal.shows("| never typed |")
    # Over two lines, with a column that Tab ends.
    terminal.types("SELECT carr\t * 6")
    terminal.types("FROM t;")
    terminal.shows("| 42 ")
    terminal.types("SELECT nosuch FROM t;")
    terminal.shows("line 1, column 8:")
    terminal.shows("^^^^^^")
    terminal.types("\\?")
    terminal.shows("indexes of all tables")
    terminal.types("\\q")
    assert terminal.process.wait(PATIENCE) == 0
    remembered = (tmp_path / ".lakemark_history").read_text()
    assert "SELECT carrier * 6" in remembered


def test_lines_that_are_typed_ahead_wait_for_the_next_prompt(terminal: Terminal, tmp_path: Path) -> None:
    terminal.shows("\\q to leave")
    terminal.types("CREATE TABLE t AS SELECT 7 AS carrier;")
    # The line was taken, and its statement runs.
    terminal.shows("[?2004l")
    # A reader of the terminal gets all of them at once, and the last one has not come to its end.
    os.write(terminal.ours, b"SELECT carrier * 6 FROM t;\rSELECT carrier * 7\rFROM t;\rSELECT carrier * 8 FR")
    terminal.shows("| 42 ")
    terminal.shows("| 49 ")
    os.write(terminal.ours, b"OM t;\r")
    terminal.shows("| 56 ")
    terminal.types("\\q")
    assert terminal.process.wait(PATIENCE) == 0
    remembered = (tmp_path / ".lakemark_history").read_text()
    assert "SELECT carrier * 6 FROM t;" in remembered

"""The `lakemark` command: the same program as the Rust binary, carried by the Python package."""

from __future__ import annotations

import signal
import sys

from lakemark import _internal

__all__ = ["main"]


def main() -> int:
    """Runs the command with the process's arguments.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong usage.
    """
    # Python's handler only sets a flag that nobody would look at while native code runs.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _internal.main(["lakemark", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

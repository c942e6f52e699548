"""Runs the quick starts of README.md, line by line as they stand: `run.py shell python spark updates`.

A quick start is the code below a heading `Quick start: NAME`. All of them run in one new folder, the shell's first,
because it makes the table that the others read. The `lakemark` command is the one that was just built.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "shell": ["200000", "\n200\n", "shop_bitmap", "shop,last", "7,"],
    "python": ["200\n50\n", "shop_bitmap", "0 | 200"],
    "spark": ["200\n", "|"],
    "updates": ["declared the key (id)", "| 2    | 1 ", "\n202\n", "key: ", "buffered rows: "],
}
IN_THE_SHELL = {"shell", "updates"}


def quick_starts(text: str) -> dict[str, str]:
    """The code of each quick start, by name in lower case."""
    found = re.findall(r"^## Quick start: (\w+)\n+```(?:bash|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return {name.lower(): code for name, code in found}


def environment(folder: Path) -> dict[str, str]:
    """PATH with our command first, and the package of this checkout."""
    command = folder / "bin" / "lakemark"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lakemark "$@"\n', encoding="ascii")
    command.chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(command.parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(name: str, code: str, folder: Path, variables: dict[str, str]) -> None:
    """Runs one quick start and checks that its output holds what it must, in that order."""
    program = ["bash", "-euo", "pipefail", "-c"] if name in IN_THE_SHELL else [sys.executable, "-c"]
    done = subprocess.run(
        [*program, code], cwd=folder, env=variables, capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode != 0:
        sys.exit(f"error: the README's {name} quick start failed\n{done.stdout}\n{done.stderr}")
    at = 0
    for part in EXPECTED[name]:
        at = done.stdout.find(part, at)
        if at < 0:
            sys.exit(f"error: the README's {name} quick start does not print {part!r} where it should:\n{done.stdout}")


def main() -> None:
    """Runs the quick starts that the arguments name."""
    wanted = sys.argv[1:]
    codes = quick_starts((ROOT / "README.md").read_text("utf-8"))
    if set(codes) != set(EXPECTED) or not wanted or not set(wanted) <= set(codes):
        sys.exit(f"usage: run.py {' '.join(EXPECTED)}; README.md has {', '.join(codes) or 'none'}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        variables = environment(folder)
        for name in dict.fromkeys(["shell", *wanted]):
            run(name, codes[name], folder, variables)
    sys.stdout.write(f"README: {len(wanted)} quick starts passed ({', '.join(wanted)})\n")


if __name__ == "__main__":
    main()

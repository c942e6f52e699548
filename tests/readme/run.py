"""Runs the quick starts of README.md and the pages that teach: `run.py shell python updates start-shell recipes …`.

A quick start is the code below a heading `Quick start: NAME` of README.md. They run in one new folder, the shell's
first, because it makes the table that the others read. A page has a new folder of its own: its blocks run from top to
bottom, and those of one language that follow each other are one program.

The `lakemark` command and the package are those that were just built.
With LAKEMARK_INSTALLED in the environment they are those of the Python that runs this program.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# What the output has to hold, in this order.
EXPECTED = {
    "shell": ["200000", "\n200\n", "shop_bitmap", "shop,last", "7,"],
    "python": ["200\n50\n", "shop_bitmap", "0 | 200"],
    "spark": ["200\n", "|"],
    "updates": ["declared the key (id)", "| 2    | 1 ", "\n202\n", "key: ", "buffered rows: "],
}
# The pages whose blocks run, and the same of them.
PAGES = {
    "start-shell": (
        DOCS / "start" / "shell.md",
        ["200000", "created index shop_bitmap", "\n200\n", "no_index", "| day ", "\n300\n", "\n300\n", "id"],
    ),
    "start-python": (
        DOCS / "start" / "python.md",
        [
            "shop_bitmap: 100% of the table",
            "200\n",
            "3 groups",
            "shop_bitmap",
            "96",
            "rows=1",
            "1\n",
            "lakemark_data_files",
        ],
    ),
    "start-operators": (
        DOCS / "start" / "operators.md",
        ["200000", "created index", "nothing to do", "uncovered_files", "exit code 4", "lakemark_coverage_ratio{"],
    ),
    "start-spark": (
        DOCS / "start" / "spark.md",
        ["by_shop", "200", "LocalTableScan", "200\n", "300\n"],
    ),
    "indexes": (DOCS / "indexes.md", ["created index shop_bitmap", "id,shop", "4711,", "id_tree", "id_summary"]),
    "recipes": (
        DOCS / "recipes.md",
        [
            "[(96,)]",
            "Graz",
            "Linz",
            "no_index",
            "shop 7 is busy",
            "day",
            "\n202\n",
            "key: ",
            "version",
        ],
    ),
}
PROGRAMS = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def quick_starts(text: str) -> dict[str, list[tuple[str, str]]]:
    """The code of each quick start with its language, by name in lower case."""
    found = re.findall(r"^## Quick start: (\w+)\n+```(bash|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return {name.lower(): [(language, code)] for name, language, code in found}


def programs(text: str) -> list[tuple[str, str]]:
    """The blocks of a page with their languages; those of one language that follow each other are one program."""
    blocks = itertools.groupby(BLOCK.findall(text), key=lambda block: block[0])
    return [(language, "\n".join(code for _, code in codes)) for language, codes in blocks]


def environment(folder: Path) -> dict[str, str]:
    """PATH with the command first, and the package of this checkout unless the installed one is meant."""
    command = folder / "bin" / "lakemark"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lakemark "$@"\n', encoding="ascii")
    command.chmod(0o755)
    variables = {
        **os.environ,
        "PATH": os.pathsep.join([str(command.parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if "LAKEMARK_INSTALLED" in os.environ:
        del variables["PYTHONPATH"]
    return variables


def run(name: str, codes: list[tuple[str, str]], expected: list[str], folder: Path, variables: dict[str, str]) -> None:
    """Runs the programs of a quick start or a page, and checks that their output holds what it must, in that order."""
    said = ""
    for language, code in codes:
        done = subprocess.run(
            [*PROGRAMS[language], code],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        said += done.stdout
        if done.returncode != 0:
            sys.exit(f"error: {name} failed\n{code}\n{said}\n{done.stderr}")
    at = 0
    for part in expected:
        found = said.find(part, at)
        if found < 0:
            sys.exit(f"error: {name} does not print {part!r} where it should:\n{said}")
        at = found + len(part)


def run_quick_starts(wanted: list[str], codes: dict[str, list[tuple[str, str]]]) -> None:
    """Runs quick starts in one folder, with the shell's before all others."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        variables = environment(folder)
        for name in dict.fromkeys(["shell", *wanted]):
            run(f"the quick start {name} of README.md", codes[name], EXPECTED[name], folder, variables)


def run_page(name: str) -> None:
    """Runs the blocks of a page in a folder of its own."""
    page, expected = PAGES[name]
    codes = programs(page.read_text("utf-8"))
    if not codes:
        sys.exit(f"error: {page} has no block to run")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        variables = environment(folder)
        if name == "indexes":
            # Its examples are about the table of the shell's page.
            first = programs(PAGES["start-shell"][0].read_text("utf-8"))[0][1].split("lakemark index")[0]
            codes = [("bash", first), *codes]
        run(str(page.relative_to(ROOT)), codes, expected, folder, variables)


def main() -> None:
    """Runs the quick starts and the pages that the arguments name."""
    wanted = sys.argv[1:]
    codes = quick_starts((ROOT / "README.md").read_text("utf-8"))
    if set(codes) != set(EXPECTED) or not wanted or not set(wanted) <= {*codes, *PAGES}:
        sys.exit(f"usage: run.py {' '.join([*EXPECTED, *PAGES])}; README.md has {', '.join(codes) or 'none'}")
    starts = [name for name in wanted if name in codes]
    if starts:
        run_quick_starts(starts, codes)
    for name in wanted:
        if name in PAGES:
            run_page(name)
    sys.stdout.write(f"{len(wanted)} quick starts and pages passed ({', '.join(wanted)})\n")


if __name__ == "__main__":
    main()

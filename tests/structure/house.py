"""Draws the modules of each crate, and the packages of the Spark connector, in layers, as the code has them.

`python tests/structure/house.py` writes the drawing.
A module stands in the lowest layer that is above all that it uses, so that arrows point down. What is drawn is
`docs/internals/house.md`; a test compares it with the code.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import java
from modules import Crate, read

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "house.md"
# From the ground up.
CRATES = ("format", "index", "table", "datafusion", "cli", "python", "jni")
WIDTH = 100
HEAD = """# The house

The modules of each crate and the packages of the Spark connector, drawn from the code by `tests/structure/house.py`.
A module uses modules of lower layers alone, and stands in the lowest layer that it can.
A room holds modules, which stand below its name in layers of their own.
The page of each crate (`README.md`) says what its rooms are.
"""


def layers(uses: dict[str, set[str]]) -> list[list[str]]:
    """The modules by layer, the ground first."""
    height: dict[str, int] = {}

    def height_of(module: str) -> int:
        if module not in height:
            height[module] = 1 + max((height_of(below) for below in uses.get(module, ())), default=-1)
        return height[module]

    found: list[list[str]] = []
    for module in sorted(uses):
        own = height_of(module)
        found.extend([] for _ in range(own + 1 - len(found)))
        found[own].append(module)
    return found


def drawn(crate: Crate) -> str:
    """The layers of a crate as text, the highest first; those of a room stand below its name."""
    lines = []
    for number, modules in reversed(list(enumerate(layers(crate.within())))):
        rooms = [module for module in modules if module in crate.rooms]
        others = [module for module in modules if module not in rooms]
        lines += _wrapped(f"{number:>3}  ", others)
        for room in rooms:
            lines.append(f"{number:>3}  {room}")
            for floor in reversed(layers(crate.within(room))):
                lines += _wrapped(" " * 11, floor)
    return "\n".join(lines)


def _wrapped(start: str, modules: list[str]) -> list[str]:
    """Modules side by side."""
    return textwrap.wrap("  ".join(modules), WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def page() -> str:
    """The page with all crates."""
    crates = (f"## {name}\n\n```text\n{drawn(read(ROOT / 'rust' / name))}\n```\n" for name in CRATES)
    return "\n".join((HEAD, *crates, f"## spark-plugin\n\n```text\n{_java()}\n```\n"))


def _java() -> str:
    """The layers of the Spark connector's packages; the classes that users name are above all."""
    floors = layers(java.packages(ROOT))
    lines = [f"{len(floors):>3}  {java.ROOT}"]
    for number, packages in reversed(list(enumerate(floors))):
        lines += _wrapped(f"{number:>3}  ", packages)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

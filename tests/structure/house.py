"""Draws the modules of each crate, and the packages of the Spark connector, in layers, as the code has them.

`python tests/structure/house.py` writes the drawing.
A module stands in the lowest layer that is above all that it uses, so that arrows point down. What is drawn is
`docs/internals/house.md`; a test compares it with the code.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import java
from modules import Crate, circles, read

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "house.md"
# From the ground up.
CRATES = ("format", "index", "table", "catalog", "datafusion", "serve", "cli", "python", "jni")
WIDTH = 100
HEAD = """# The house

The modules of each crate and the packages of the Spark connector, drawn from the code by `tests/structure/house.py`.
A module uses modules of lower layers alone, and stands in the lowest layer that it can.
A room holds modules, which stand below its name in layers of their own.
Modules in brackets lead back to each other: `tests/structure/test_modules.py` lists them, and they may only get fewer.
The page of each crate (`README.md`) says what its rooms are.
"""


def layers(uses: dict[str, set[str]]) -> list[list[list[str]]]:
    """The modules by layer, the ground first; those that lead back to each other are together, the others alone."""
    known = {module: circle for circle in circles(uses) for module in circle}
    height: dict[str, int] = {}

    def height_of(module: str) -> int:
        if module not in height:
            circle = known.get(module, [module])
            below = {other for member in circle for other in uses.get(member, ())} - set(circle)
            own = 1 + max((height_of(other) for other in below), default=-1)
            height.update(dict.fromkeys(circle, own))
        return height[module]

    found: list[list[list[str]]] = []
    for module in sorted(uses):
        own = height_of(module)
        found.extend([] for _ in range(own + 1 - len(found)))
        circle = known.get(module, [module])
        if circle[0] == module:
            found[own].append(circle)
    return found


def drawn(crate: Crate, room: str = "") -> list[str]:
    """The layers of a crate or a room as lines, the highest first; those of a room inside stand below its name."""
    lines = []
    indent = " " * (6 * len(room.split("::"))) if room else ""
    for number, together in reversed(list(enumerate(layers(crate.within(room))))):
        start = f"{indent}{number:>3}  "
        paths = {module: f"{room}::{module}" if room else module for modules in together for module in modules}
        rooms = [module for module, path in paths.items() if path in crate.rooms]
        alone = [modules[0] for modules in together if len(modules) == 1 and modules[0] not in rooms]
        lines += _wrapped(start, alone)
        for circle in (modules for modules in together if len(modules) > 1):
            lines += _wrapped(f"{start}[", [*circle[:-1], f"{circle[-1]}]"])
        for module in rooms:
            lines += [f"{start}{module}", *drawn(crate, paths[module])]
    return lines


def _wrapped(start: str, modules: list[str]) -> list[str]:
    """Modules side by side."""
    return textwrap.wrap("  ".join(modules), WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def page() -> str:
    """The page with all crates."""
    drawings = {name: "\n".join(drawn(read(ROOT / "rust" / name))) for name in CRATES}
    crates = (f"## {name}\n\n```text\n{drawing}\n```\n" for name, drawing in drawings.items())
    return "\n".join((HEAD, *crates, f"## spark-plugin\n\n```text\n{_java()}\n```\n"))


def _java() -> str:
    """The layers of the Spark connector's packages; the classes that users name are above all."""
    floors = layers(java.packages(ROOT))
    lines = [f"{len(floors):>3}  {java.ROOT}"]
    for number, together in reversed(list(enumerate(floors))):
        lines += _wrapped(f"{number:>3}  ", [package for packages in together for package in packages])
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

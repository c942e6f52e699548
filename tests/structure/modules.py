"""The modules of the Rust crates, and what each of them uses, read from the code.

A module is what a file holds: `src/a.rs` and `src/a/b.rs` are `a` and `a::b`. It uses another one if a path in it, in a
`use` line or elsewhere, leads there by `crate::`, `super::` or `self::`. Comments, texts and tests are left out.
Names that the head of a folder has from elsewhere, by a `use` line, lead to the module that has them.
A room is a module that holds others: the head of a folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\\\'])\'', re.DOTALL
)
USE = re.compile(r"\buse\s+((?:crate|super|self)\b[^;]*);")
ANY_USE = re.compile(r"\buse\s+([^;]*);")
PATH = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*(?:super|[A-Za-z_][A-Za-z_0-9]*))+")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(mod|fn|use|impl)\b")


@dataclass
class Crate:
    """A crate: its modules, and for each of them the modules that it uses.

    Attributes:
        name: Its name, without `lakemark-`.
        uses: For each module, by its path, the paths of those that it uses.
    """

    name: str
    uses: dict[str, set[str]] = field(default_factory=dict)

    @property
    def rooms(self) -> list[str]:
        """The paths of the modules that hold others, in any depth."""
        return sorted({module.rpartition("::")[0] for module in self.uses if "::" in module})

    def within(self, room: str = "") -> dict[str, set[str]]:
        """For each module right inside of a room, or of the crate, the others in there that it uses."""
        inside: dict[str, set[str]] = {}
        start = f"{room}::" if room else ""
        for module, used in self.uses.items():
            if not module.startswith(start):
                continue
            own, *others = (
                other.removeprefix(start).split("::")[0] for other in (module, *used) if other.startswith(start)
            )
            inside.setdefault(own, set()).update(set(others) - {own})
        return inside

    def circles(self) -> dict[str, list[list[str]]]:
        """Sets of modules that lead back to each other: by the room that they are in, which is empty for the crate."""
        found = {room: circles(self.within(room)) for room in ("", *self.rooms)}
        return {room: sets for room, sets in found.items() if sets}


def bare(text: str) -> str:
    """Code without comments, texts and tests."""
    text = COMMENT_OR_TEXT.sub(lambda found: '""' if found.group()[0] in "\"rb'" else " ", text)
    while found := TESTS.search(text):
        text = text[: found.start()] + text[_end(text, found.end()) :]
    return text


def _end(text: str, start: int) -> int:
    """Where the item ends that goes on at `start`: at its semicolon, or with its braces."""
    depth = 0
    for place in range(start, len(text)):
        match text[place]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return place + 1
            case ";" if depth == 0:
                return place + 1
    return len(text)


def unfolded(tree: str) -> list[str]:
    """The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        return [re.sub(r"\s+as\s+\w+$", "", tree)]
    parts, depth, last = [], 0, brace + 1
    for place in range(brace, len(tree)):
        if tree[place] == "{":
            depth += 1
        elif tree[place] == "}":
            depth -= 1
            if depth == 0:
                parts.append(tree[last:place])
        elif tree[place] == "," and depth == 1:
            parts.append(tree[last:place])
            last = place + 1
    return [tree[:brace] + path for part in parts if part.strip() for path in unfolded(part)]


def paths(text: str) -> set[str]:
    """All paths of bare code that lead to modules of the crate."""
    found = {path for tree in USE.findall(text) for path in unfolded(tree)}
    found |= set(PATH.findall(USE.sub(" ", text)))
    return {re.sub(r"\s+", "", path) for path in found}


def absolute(path: str, module: str) -> list[str]:
    """The names on the way from the root of the crate."""
    names = path.split("::")
    at = module.split("::") if module else []
    if names[0] == "crate":
        return names[1:]
    while names and names[0] in ("super", "self"):
        if names[0] == "super":
            at = at[:-1]
        names = names[1:]
    return at + names


@cache
def read(folder: Path) -> Crate:
    """Reads the crate whose `Cargo.toml` is in this folder."""
    code = {module: bare(text) for module, text in _texts(folder / "src").items()}
    given = _given(code)
    crate = Crate(folder.name)
    for module, text in code.items():
        if module:
            used = {_home(absolute(path, module), code, given) for path in paths(text)}
            crate.uses[module] = used - {module, ""}
    return crate


def _home(names: list[str], code: dict[str, str], given: dict[str, str]) -> str:
    """The module that has what a path leads to; empty for the root of the crate."""
    for end in range(len(names), 0, -1):
        path = "::".join(names[:end])
        if path in code:
            return path
        if path in given:
            return _home(given[path].split("::"), code, {name: to for name, to in given.items() if name != path})
    return ""


def _texts(source: Path) -> dict[str, str]:
    """The text of each module, by its path; tests are no modules."""
    texts: dict[str, str] = {}
    for path in sorted(source.rglob("*.rs")):
        names = path.relative_to(source).with_suffix("").parts
        if names[-1] in ("lib", "main", "mod"):
            names = names[:-1]
        if any(name == "tests" or name.endswith("_tests") for name in names):
            continue
        texts["::".join(names)] = path.read_text(encoding="utf-8")
    return texts


def _given(code: dict[str, str]) -> dict[str, str]:
    """Names that heads of folders have by `use` lines, with the paths that these lines give them."""
    given = {}
    for module, text in code.items():
        at = module.split("::") if module else []
        trees = (re.sub(r"\s+", " ", tree) for tree in ANY_USE.findall(text))
        for path in (path.replace(" ", "") for tree in trees for path in unfolded(tree)):
            first, *_, last = path.split("::")
            if first not in ("crate", "super", "self"):
                names = [*at, *path.split("::")]
                if "::".join([*at, first]) not in code:
                    continue
            else:
                names = absolute(path, module)
            given["::".join([*at, last])] = "::".join(names)
    return given


def circles(uses: dict[str, set[str]]) -> list[list[str]]:
    """Sets of more than one node that all lead to each other, the largest first."""
    reached = {node: _reached(uses, node) for node in uses}
    found = set()
    for node, others in reached.items():
        circle = frozenset(other for other in others if node in reached.get(other, ()))
        if len(circle) > 1:
            found.add(circle)
    return sorted((sorted(circle) for circle in found), key=lambda circle: (-len(circle), circle))


def _reached(uses: dict[str, set[str]], start: str) -> set[str]:
    """All nodes that a node leads to."""
    reached: set[str] = set()
    left = [start]
    while left:
        new = uses.get(left.pop(), set()) - reached
        reached |= new
        left.extend(new)
    return reached

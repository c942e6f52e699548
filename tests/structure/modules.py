"""The modules of the Rust crates, and what each of them uses, read from the code.

A module is what a file holds: `src/a.rs` and `src/a/b.rs` are `a` and `a::b`. It uses another one if a path in it, in a
`use` line or elsewhere, leads there by `crate::`, `super::` or `self::`. Comments, texts and tests are left out.
Names that the root of a crate gives again lead to the module that has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\\\'])\'', re.DOTALL
)
MODULE = re.compile(r"\b(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*;")
USE = re.compile(r"\buse\s+((?:crate|super|self)\b[^;]*);")
PATH = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*(?:super|[A-Za-z_][A-Za-z_0-9]*))+")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(mod|fn|use|impl)\b")


@dataclass
class Crate:
    """A crate: its modules, and for each of them the modules that it uses.

    Attributes:
        name: Its name, without `lakemark-`.
        uses: For each module, by its path, the paths of those that it uses.
        rooms: The top-level modules that hold nothing but modules.
    """

    name: str
    uses: dict[str, set[str]] = field(default_factory=dict)
    rooms: list[str] = field(default_factory=list)

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

    def circles(self) -> list[list[str]]:
        """Sets of top-level modules, and of modules of a room, that lead back to each other."""
        return [circle for room in ("", *self.rooms) for circle in circles(self.within(room))]


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


def read(folder: Path) -> Crate:
    """Reads the crate whose `Cargo.toml` is in this folder."""
    texts = _texts(folder / "src")
    crate = Crate(folder.name)
    given = _given(bare(texts.get("", "")), texts)
    for module, text in texts.items():
        if not module:
            continue
        code = bare(text)
        if "::" not in module and code.strip() and not MODULE.sub("", code).strip():
            crate.rooms.append(module)
        used = set()
        for path in paths(code):
            names = absolute(path, module)
            if len(names) >= 1 and names[0] in given and names[0] not in texts:
                names = given[names[0]].split("::")
            while names and "::".join(names) not in texts:
                names = names[:-1]
            if names:
                used.add("::".join(names))
        crate.uses[module] = used - {module}
    return crate


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


def _given(root: str, texts: dict[str, str]) -> dict[str, str]:
    """Names that the root of a crate gives again, with the modules that have them."""
    given = {}
    for tree in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]*);", root):
        for path in unfolded(re.sub(r"\s+", " ", tree)):
            names = [name.strip() for name in path.split("::")]
            names = names[1:] if names[0] in ("crate", "self") else names
            module = names[:-1]
            while module and "::".join(module) not in texts:
                module = module[:-1]
            if module:
                given[names[-1]] = "::".join(module)
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

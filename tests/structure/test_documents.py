"""Documents name files and folders that are there.

A path in backticks is looked at if it begins with a top folder, or ends as a source or a document does.
It may leave out folders in front: `turn/merge.rs` is the one of `rust/table/src/updates`.
What stands for many is written with `*`, `…`, `...` or a word in capitals (`rules/NAME.rs`), and has to be found, too.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"`([^`\n]+)`")
SOURCE = re.compile(r"[^/]\.(rs|py|java|md|toml|sh|ipynb)$")
# Whatever stands for any text within a name, any names, and any one name.
GENERIC = re.compile(r"(?P<text>\*)|(?P<names>…|\.\.\.)|(?P<name>\b[A-Z]{4,}\b)")


@cache
def files() -> list[str]:
    """The files of the repository, without those that git leaves out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).exists()]


@cache
def places() -> str:
    """All files and folders of the repository, one in a line and each behind a slash."""
    folders = {str(folder) for path in files() for folder in Path(path).parents}
    return "\n".join(f"/{place}" for place in sorted({*files(), *folders}))


@cache
def is_there(path: str) -> bool:
    """Whether a file or a folder has this path, or ends with it."""
    generic = {"text": "[^/\n]*", "names": "[^\n]*", "name": "[^/\n]+"}
    pattern, last = "", 0
    for found in GENERIC.finditer(path):
        pattern += re.escape(path[last : found.start()]) + generic[str(found.lastgroup)]
        last = found.end()
    return re.search(f"/{pattern}{re.escape(path[last:].rstrip('/'))}$", places(), re.MULTILINE) is not None


def named(text: str) -> list[str]:
    """The paths of the repository that a document names."""
    top = {path.split("/")[0] for path in files() if "/" in path}
    words = [word for quoted in QUOTED.findall(FENCED.sub("", text)) for word in quoted.split()]
    return [word for word in words if ("/" in word and word.split("/")[0] in top) or SOURCE.search(word)]


@pytest.mark.parametrize("document", sorted(path for path in files() if path.endswith(".md")))
def test_what_a_document_names_is_there(document: str) -> None:
    missing = [path for path in named((ROOT / document).read_text(encoding="utf-8")) if not is_there(path)]
    assert not missing, (
        f"{document} names {missing}, which no file or folder has; many are `*`, `…` or a word as `NAME`"
    )


def test_paths_are_found_in_backticks_outside_of_blocks() -> None:
    text = (
        "`make test` in `rust/table`, tests/none and `python tests/structure/house.py`\n```\n`rust/none`\n```\n`a.py`"
    )
    assert named(text) == ["rust/table", "tests/structure/house.py", "a.py"]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("rust/table/src/", True),
        ("structure/house.py", True),
        ("ructure/house.py", False),
        ("tests/structure/h*.py", True),
        ("rust/*/src", True),
        ("rust/*/house.py", False),
        ("tests/.../house.py", True),
        ("structure/NAME.py", True),
        ("structure/NAME.rs", False),
    ],
)
def test_paths_that_stand_for_many_are_found(path: str, there: bool) -> None:
    assert is_there(path) is there


def test_decisions_are_listed_and_say_what_was_measured() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"\]\((\d{4}-[^)]+)\)", (folder / "README.md").read_text(encoding="utf-8"))
    decisions = sorted(path.name for path in folder.glob("0*.md"))
    assert decisions, "no decision was found"
    assert listed == decisions
    for name in decisions:
        sections = re.split(r"^## (.*)\n", (folder / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        assert sections[::2] == ["First design", "Decision", "Why", "Other ways", "Figures"], name
        assert all(text.strip() for text in sections[1::2]), name

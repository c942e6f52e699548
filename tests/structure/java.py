"""The packages of the Spark connector, what each of them uses by its `import` lines, and what has no Javadoc."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = "spark-plugin/src/main/java/io/lakemark/spark"
ROOT = "io.lakemark.spark"
USED = re.compile(r"\bio\.lakemark\.spark\.(?:([a-z]+)\.)?([A-Z]\w*)")
PUBLIC = re.compile(r"\s*(public|protected)\b")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def uses(repository: Path) -> dict[str, set[tuple[str, str]]]:
    """For each package below the root, the classes of others that it uses: package (empty for the root) and class."""
    found: dict[str, set[tuple[str, str]]] = {}
    for path in sorted((repository / SOURCES).glob("*/*.java")):
        package = path.parent.name
        text = COMMENT.sub(" ", path.read_text(encoding="utf-8"))
        used = {(other, name) for other, name in USED.findall(text) if other != package}
        found.setdefault(package, set()).update(used)
    return found


def packages(repository: Path) -> dict[str, set[str]]:
    """For each package below the root, the others that it uses."""
    return {package: {other for other, _ in used if other} for package, used in uses(repository).items()}


def undocumented(repository: Path) -> list[str]:
    """Lines of public and protected members without Javadoc; what overrides has that of the overridden one."""
    found = []
    for path in sorted((repository / SOURCES).rglob("*.java")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if not PUBLIC.match(line):
                continue
            above = number - 1
            while lines[above].lstrip().startswith("@"):
                above -= 1
            is_override = any("@Override" in annotation for annotation in lines[above + 1 : number])
            if not is_override and not lines[above].endswith("*/"):
                found.append(f"{path.name}:{number + 1}: {line.strip()}")
    return found

"""The packages of the Spark connector, and what each of them uses, read from the `import` lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = "spark-plugin/src/main/java/io/lakemark/spark"
ROOT = "io.lakemark.spark"
USED = re.compile(r"\bio\.lakemark\.spark\.(?:([a-z]+)\.)?([A-Z]\w*)")
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

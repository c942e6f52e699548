"""Lets the pages of docs/ link to whatever is beside them in the repository.

A page outside of docs/ that a page links to becomes a page of the site below `project/`, and so on from there.
Any other file that is linked to, such as a picture or a notebook, goes with the site as it is.
Links are rewritten for that, and those to folders become plain text.
`reached` says which files these are, and needs nothing of MkDocs, so that tests ask it, too.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Where pages and files from outside of docs/ are on the site.
BESIDE = "project"
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<shown>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
ITEM = re.compile(r" *([-*]|\d+\.) ")
API = "<!-- rustdoc and javadoc -->"
# What the verb of the site hands over: folders of pages that other tools made.
MADE = {
    "LAKEMARK_SITE_RUST": ("rust", "Crates", "lakemark_table"),
    "LAKEMARK_SITE_JAVA": ("java", "Spark connector", ""),
}


def links(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The links of a page to files, with their paths; links in code and to elsewhere are none."""
    code = [match.span() for match in FENCED.finditer(text)]
    for found in LINK.finditer(text):
        path = found["path"]
        in_code = any(start <= found.start() < end for start, end in code)
        if path and ":" not in path and not in_code:
            yield found, path


def target(page: str, path: str) -> str:
    """What a link of a page leads to, as a path of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def pages_of_docs() -> list[str]:
    """The pages of docs/, as paths of the repository."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


def reached() -> list[str]:
    """The files outside of docs/ that pages link to, and the pages among them."""
    seen: set[str] = set()
    left = pages_of_docs()
    while left:
        page = left.pop()
        for _, path in links((ROOT / page).read_text(encoding="utf-8")):
            found = target(page, path)
            if found.startswith("docs/") or found in seen or not (ROOT / found).is_file():
                continue
            seen.add(found)
            if found.endswith(".md"):
                left.append(found)
    return sorted(seen)


def place(path: str) -> str:
    """Where a file of the repository is among the sources of the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{BESIDE}/{path}"


def rewritten(page: str, text: str) -> str:
    """A page of the repository with its links as the site has them."""
    parts, last = [], 0
    for found, path in links(text):
        to = target(page, path)
        parts.append(text[last : found.start()])
        last = found.end()
        if (ROOT / to).is_dir():
            parts.append(found["shown"][1:-1])
            continue
        link = posixpath.relpath(place(to), posixpath.dirname(place(page)) or ".")
        parts.append(f"{found['shown']}({link}{found['anchor'] or ''})")
    return "".join(parts) + text[last:]


def spaced(text: str) -> str:
    """A page with an empty line between a paragraph within an item of a list and the next item.

    Python's Markdown wants one there; other readers of these pages do not.
    """
    lines: list[str] = []
    fenced = in_paragraph = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if not fenced and in_paragraph and ITEM.match(line):
            lines.append("")
        if not line.strip() or ITEM.match(line):
            in_paragraph = False
        elif lines and not lines[-1].strip():
            in_paragraph = line.startswith("  ")
        lines.append(line)
    return "\n".join(lines)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds what pages link to outside of docs/."""
    from mkdocs.structure.files import File

    for path in reached():
        files.append(File.generated(config, place(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links of a page, and names the pages that other tools made."""
    del config, files
    source = page.file.src_uri
    path = source.removeprefix(f"{BESIDE}/") if source.startswith(f"{BESIDE}/") else f"docs/{source}"
    made = [
        f'* <a href="../{folder}/{posixpath.join(first, "index.html")}">{title}</a>'
        for variable, (folder, title, first) in MADE.items()
        if os.environ.get(variable)
    ]
    return spaced(rewritten(path, markdown)).replace(API, "\n".join(["", *made]))


def on_post_build(*, config: MkDocsConfig) -> None:
    """Puts the pages that other tools made beside those of the site."""
    import shutil

    for variable, (folder, _, _) in MADE.items():
        if made := os.environ.get(variable):
            shutil.copytree(made, Path(config.site_dir) / folder, dirs_exist_ok=True)

"""The site: its list of pages is whole, links and anchors lead somewhere, and its picture is the drawn one."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


def module(name: str) -> ModuleType:
    """A file of the folder of the site, which is no package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


HOOKS = module("hooks")
PAGES = [*HOOKS.pages_of_docs(), *(path for path in HOOKS.reached() if path.endswith(".md"))]
# A page of MkDocs' list, alone or behind its title.
LISTED = re.compile(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", re.MULTILINE)


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def anchors(page: str) -> frozenset[str]:
    """The anchors of a page's headings, as readers of Markdown make them."""
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", HOOKS.FENCED.sub("", text(page)), re.MULTILINE):
        plain = re.sub(r"\]\([^)]*\)", "]", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = seen[anchor] = seen.get(anchor, -1) + 1
        found.add(f"{anchor}-{number}" if number else anchor)
    return frozenset(found)


def test_the_list_of_pages_has_every_page_once() -> None:
    listed = LISTED.findall(text("site/mkdocs.yml"))
    assert len(listed) > 40
    assert len(set(listed)) == len(listed)
    assert sorted(listed) == sorted(HOOKS.place(page) for page in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    lost = []
    for found in HOOKS.LINK.finditer(HOOKS.FENCED.sub("", text(page))):
        path, anchor = found["path"], (found["anchor"] or "").removeprefix("#")
        if ":" in path:
            continue
        to = HOOKS.target(page, path) if path else page
        if not (ROOT / to).exists() or (anchor and to.endswith(".md") and anchor not in anchors(to)):
            lost.append(found[0])
    assert not lost


def test_anchors_are_those_that_readers_make() -> None:
    assert {"7-spark", "2-indexing-a-table"} <= anchors("docs/guide.md")
    assert "null-or-a-zero-in-a-list-beside-another-list" in anchors("docs/limits.md")
    assert "sample" not in anchors("docs/guide.md")


def test_links_to_what_is_beside_the_pages_are_rewritten() -> None:
    rewritten = HOOKS.rewritten(
        "docs/guide.md",
        "[a](../ARCHITECTURE.md#laws) ![b](../benchmarks/results/c.png) [d](keys.md) [e](../benchmarks)\n",
    )
    assert rewritten == "[a](project/ARCHITECTURE.md#laws) ![b](project/benchmarks/results/c.png) [d](keys.md) e\n"
    assert HOOKS.rewritten("ARCHITECTURE.md", "[a](docs/format.md)") == "[a](../format.md)"
    assert HOOKS.rewritten("docs/a.md", "```text\n[a](../b.md)\n```\n") == "```text\n[a](../b.md)\n```\n"


def test_an_item_behind_a_paragraph_of_another_one_is_an_item() -> None:
    assert HOOKS.spaced("* a\n\n  more\n* b\n* c") == "* a\n\n  more\n\n* b\n* c"
    assert HOOKS.spaced("* a\n  more\n* b\n```\n* c\n```") == "* a\n  more\n* b\n```\n* c\n```"


def test_pages_leave_nothing_for_later() -> None:
    assert len(PAGES) > 40
    assert [page for page in PAGES if re.search(r"\b(TODO|TBD|FIXME|lorem ipsum)\b", text(page))] == []


def test_the_picture_of_the_landing_page_is_the_drawn_one() -> None:
    draw = module("draw")
    assert draw.PICTURE.read_text(encoding="utf-8") == draw.picture()
    assert "pictures/dive.svg" in text("docs/index.md")

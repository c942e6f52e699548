"""Shows the examples of docstrings as code: among paragraphs Markdown takes their `>>>` for quotations.

An extension of griffe, which reads the package for the site.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import griffe

if TYPE_CHECKING:
    from typing import Any

# From the first line of an example up to an empty line.
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)
# Tests have a table made for them; readers have one of their own.
FIXTURE = re.compile(r"getfixture\((\"\w+\")\)")


def shown(text: str) -> str:
    """A docstring whose examples are blocks of code."""

    def block(found: re.Match[str]) -> str:
        return "```pycon\n" + FIXTURE.sub(r"\1", found[0]) + "\n```"

    return EXAMPLE.sub(block, text)


class Doctests(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - whatever griffe hands over
        """Rewrites the docstring of a class, a function or a module."""
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)

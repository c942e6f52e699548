"""Conditions for our scan, as SQL: no row that an engine's condition is true for fails one.

They are made from the bottom up. A negation goes to the leaves first, so that conditions are ANDs and ORs of leaves.
What cannot be taken is `ANYTHING`, and a condition stays right around it: rows are never lost, and the engine looks at
those that are too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ANYTHING", "NOTHING", "Condition", "all_of", "any_of"]

# Parsers of SQL go no deeper into parentheses than 50.
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition.

    Attributes:
        text: The SQL; none if every row passes.
        is_exact: Whether it is true for the rows that the engine's condition is true for, and for no other.
        chain: `AND` or `OR` if the text is a chain of them.
        depth: How deep parentheses go.
    """

    text: str | None
    is_exact: bool
    chain: str = ""
    depth: int = 0


ANYTHING = Condition(None, is_exact=False)
NOTHING = Condition("false", is_exact=True)


def all_of(parts: Iterable[Condition]) -> Condition:
    """Rows for which all parts are true.

    >>> low, high = Condition("x > 1", is_exact=True), Condition("x < 9 OR y", is_exact=True, chain="OR")
    >>> all_of([low, ANYTHING, high])
    Condition(text='x > 1 AND (x < 9 OR y)', is_exact=False, chain='AND', depth=1)
    """
    listed = list(parts)
    if NOTHING in listed:
        # Exact even beside what was not taken: no row is true for the engine.
        return NOTHING
    return _chained("AND", [part for part in listed if part.text is not None], all(part.is_exact for part in listed))


def any_of(parts: Iterable[Condition]) -> Condition:
    """Rows for which one of the parts is true.

    >>> any_of([NOTHING, Condition("x > 1", is_exact=True)]).text, any_of([NOTHING, ANYTHING]).text
    ('x > 1', None)
    """
    listed = [part for part in parts if part != NOTHING]
    if not listed:
        return NOTHING
    if any(part.text is None for part in listed):
        return ANYTHING
    return _chained("OR", listed, all(part.is_exact for part in listed))


def _chained(word: str, parts: list[Condition], is_exact: bool) -> Condition:
    if not parts:
        return Condition(None, is_exact)
    if len(parts) == 1:
        return Condition(parts[0].text, is_exact, parts[0].chain, parts[0].depth)
    texts, depth = [], 0
    for part in parts:
        is_other = part.chain not in ("", word)
        texts.append(f"({part.text})" if is_other else str(part.text))
        depth = max(depth, part.depth + is_other)
    return ANYTHING if depth > _DEEPEST else Condition(f" {word} ".join(texts), is_exact, word, depth)

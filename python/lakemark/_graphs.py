"""Drawing: a few nodes and the links between them, for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from lakemark._pictures import GREEN, GREY

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

__all__ = ["MOST_NODES", "Edge", "Graph", "drawn"]

#: More nodes are no drawing that people would rather look at.
MOST_NODES = 40

_COLUMN = 170
_ROW = 34
_RADIUS = 5
_MARGIN = 24
_MOST_LETTERS = 18


class Edge(NamedTuple):
    """A link that is drawn."""

    start: Hashable
    end: Hashable
    label: object


@dataclass(frozen=True)
class Graph:
    """Nodes, each in the column of its number, and links between them."""

    columns: Mapping[Hashable, int]
    edges: Sequence[Edge]


class _Point(NamedTuple):
    x: float
    y: float


def drawn(graph: Graph) -> str:
    """Draws nodes in columns, and links as lines between them. Nothing is drawn of no node.

    >>> picture = drawn(Graph({"cat": 0, "<b>": 1}, [Edge("cat", "<b>", "is_a")]))
    >>> picture.count("<circle"), picture.count("<path"), picture.count("&lt;b&gt;")
    (2, 2, 2)
    >>> drawn(Graph({}, []))
    ''
    """
    if not graph.columns:
        return ""
    points = _points(graph.columns)
    width = max(point.x for point in points.values()) + _COLUMN
    height = max(point.y for point in points.values()) + _MARGIN
    edges = [edge for edge in graph.edges if edge.start in points and edge.end in points]
    lines = "".join(_line(points[edge.start], points[edge.end], edge.label) for edge in edges)
    dots = "".join(_dot(point, str(node)) for node, point in points.items())
    tip = (
        '<defs><marker id="lakemark-tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="sans-serif" font-size="12">{tip}{lines}{dots}</svg>'
    )


def _points(columns: Mapping[Hashable, int]) -> dict[Hashable, _Point]:
    """Where each node is: below the ones before it in its column."""
    used: dict[int, int] = {}
    points = {}
    for node, column in columns.items():
        row = used.get(column, 0)
        used[column] = row + 1
        points[node] = _Point(_MARGIN + column * _COLUMN, _MARGIN + row * _ROW)
    return points


def _line(start: _Point, end: _Point, label: object) -> str:
    title = "" if label is None else f"<title>{escape(str(label))}</title>"
    if start == end:
        way = f"M{start.x:.0f} {start.y - _RADIUS:.0f}c-18 -22 18 -22 0 0"
    else:
        middle = (start.x + end.x) / 2
        # Links within a column are bent aside.
        bend = middle if start.x != end.x else start.x - _COLUMN / 4
        begin = f"M{start.x:.0f} {start.y:.0f}C{bend:.0f} {start.y:.0f}"
        way = f"{begin} {bend:.0f} {end.y:.0f} {end.x - _RADIUS:.0f} {end.y:.0f}"
    return f'<path d="{way}" fill="none" stroke="{GREY}" marker-end="url(#lakemark-tip)">{title}</path>'


def _dot(point: _Point, name: str) -> str:
    shown = name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"
    x, y = point.x + _RADIUS + 3, point.y - _RADIUS
    return (
        f'<g><title>{escape(name)}</title><circle cx="{point.x:.0f}" cy="{point.y:.0f}" r="{_RADIUS}" fill="{GREEN}"/>'
        f'<text x="{x:.0f}" y="{y:.0f}" fill="currentColor">{escape(shown)}</text></g>'
    )

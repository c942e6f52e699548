"""Walks over the links of a table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from lakemark import _arrow, _graphs
from lakemark.exceptions import InvalidInputError
from lakemark.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakemark import _internal

__all__ = ["Direction", "LinkRows", "Links"]

#: Which way links are followed: from subjects to objects, back, or either way.
Direction: TypeAlias = Literal["out", "in", "both"]


class WalkArguments(TypedDict):
    """What a walk goes by, as the native library takes it."""

    via: object | None
    direction: str
    min_depth: int
    max_depth: int | None
    limit: int | None


class LinkRows(Rows):
    """Rows of a walk, which are at hand. A notebook shows them as a small graph, if they are few."""

    def __init__(self, inner: _internal.ArrowTable, graph: Callable[[LinkRows], _graphs.Graph]) -> None:
        super().__init__(inner)
        self._graph = graph

    def _repr_html_(self) -> str:
        rows = self._inner.rows() if hasattr(self._inner, "rows") else 0
        drawn = _graphs.drawn(self._graph(self)) if 0 < rows <= _graphs.MOST_NODES else ""
        return drawn + super()._repr_html_()


class Links:
    """The links that the rows of an edge table are: from subjects over predicates to objects.

    Each method sees the newest state of the table, buffered updates included. What indexes of the kind `links` do not
    have is read, so that answers are the same with them and without. A link that several rows are is there once, and
    one without a subject or an object is none.

    >>> import lakemark
    >>> table = lakemark.Table(getfixture("terms"))
    >>> table.create_index(["s", "p", "o"], using="links", progress=False).kind
    'links'
    >>> links = table.links("s", "p", "o")
    >>> links.out("cat").to_arrow().to_pylist()
    [{'from': 'cat', 'predicate': 'is_a', 'node': 'mammal'}, {'from': 'cat', 'predicate': 'likes', 'node': 'fish'}]
    >>> links.reach("cat", via="is_a").to_arrow().to_pylist()
    [{'node': 'mammal', 'depth': 1}, {'node': 'animal', 'depth': 2}]
    """

    def __init__(self, inner: _internal.Links, columns: tuple[str, ...]) -> None:
        self._inner = inner
        self._columns = columns

    def __repr__(self) -> str:
        return f"Links({', '.join(map(repr, self._columns))})"

    def out(self, x: object, via: object = None, *, limit: int | None = None) -> Rows:
        """Finds what nodes are linked with, as subjects.

        Args:
            x: A node, a sequence of nodes, or an Arrow array.
            via: The predicate of the links, or several; any without one.
            limit: How many links at most.

        Returns:
            Rows `from`, `predicate` (where links have one) and `node`, in their order.

        Raises:
            InvalidInputError: A node or a predicate is of another type than its column.
            UnsupportedError: Too many links have no index, or there is too little memory; the message says what to do.
        """
        return self._neighbours(x, _walk(via, "out", limit=limit))

    def into(self, x: object, via: object = None, *, limit: int | None = None) -> Rows:
        """Finds what is linked with nodes, as objects.

        >>> import lakemark
        >>> links = lakemark.Table(getfixture("terms")).links("s", "p", "o")
        >>> sorted(row["node"] for row in links.into("mammal", via="is_a").to_arrow().to_pylist())
        ['cat', 'dog']

        Args:
            x: As for `out`.
            via: As for `out`.
            limit: As for `out`.

        Returns:
            Rows `from`, which is the object, `predicate` (where links have one) and `node`, which is the subject.

        Raises:
            InvalidInputError: As for `out`.
            UnsupportedError: As for `out`.
        """
        return self._neighbours(x, _walk(via, "in", limit=limit))

    def degree(self, x: object, via: object = None) -> Rows:
        """Counts the links of nodes.

        >>> import lakemark
        >>> links = lakemark.Table(getfixture("terms")).links("s", "p", "o")
        >>> [tuple(row.values()) for row in links.degree(["cat", "animal", "unicorn"]).to_arrow().to_pylist()]
        [('animal', 0, 2), ('cat', 2, 1), ('unicorn', 0, 0)]

        Args:
            x: As for `out`.
            via: As for `out`.

        Returns:
            Rows `node`, `out` and `in`, each node once, in their order.

        Raises:
            InvalidInputError: As for `out`.
            UnsupportedError: As for `out`.
        """
        return Rows(self._inner.degrees(_arrow.key_array(x), _walk(via, "both")))

    def common(self, x: object, via: object = None, *, direction: Direction = "out") -> Rows:
        """Finds the nodes that all of some nodes are linked with.

        >>> import lakemark
        >>> links = lakemark.Table(getfixture("terms")).links("s", "p", "o")
        >>> links.common(["cat", "dog"]).to_arrow().to_pylist()
        [{'node': 'mammal'}]

        Args:
            x: A sequence of nodes, or an Arrow array.
            via: As for `out`.
            direction: Which way links are followed.

        Returns:
            Rows `node`, in their order.

        Raises:
            InvalidInputError: As for `out`.
            UnsupportedError: As for `out`.
        """
        return Rows(self._inner.common(_arrow.key_array(x), _walk(via, direction)))

    def reach(
        self,
        x: object,
        via: object = None,
        *,
        direction: Direction = "out",
        min_depth: int = 1,
        max_depth: int | None = None,
        limit: int | None = None,
    ) -> Rows:
        """Finds the nodes that links lead to, over others or not.

        Args:
            x: The node to start from, or several, as for `out`.
            via: As for `out`.
            direction: Which way links are followed.
            min_depth: How many links away a node is at least. With 0 the start is among the rows; with 1 it is if
                links lead back to it.
            max_depth: How many links away a node is at most; any number without one.
            limit: How many nodes at most; the nearest ones.

        Returns:
            Rows `node` and `depth`, each node once, with the fewest links to it. They are in the order of depths, then
            of nodes.

        Raises:
            InvalidInputError: As for `out`; also a least depth above the largest one, or one below 0.
            UnsupportedError: As for `out`. What was seen has to fit into memory: an answer is never smaller.
        """
        starts, via = _arrow.key_array(x), None if via is None else _arrow.key_array(via)
        given = _walk(via, direction, _depth(min_depth), None if max_depth is None else _depth(max_depth), limit)

        def graph(rows: LinkRows) -> _graphs.Graph:
            found = rows.to_arrow()
            nodes, depths = found["node"].to_pylist(), found["depth"].to_pylist()
            # A start that links lead back to is drawn as a start.
            places = dict(zip(nodes, depths, strict=True)) | dict.fromkeys(_listed(starts), 0)
            links = self._inner.neighbours(_arrow.key_array(list(places)), _walk(via, direction))
            edges = Rows(links).to_arrow().to_pylist()
            inside = [_graphs.Edge(e["from"], e["node"], e.get("predicate")) for e in edges if e["node"] in places]
            return _graphs.Graph(places, inside)

        return LinkRows(self._inner.reach(starts, given), graph)

    def path(
        self,
        a: object,
        b: object,
        via: object = None,
        *,
        direction: Direction = "out",
        max_depth: int | None = None,
    ) -> Rows:
        """Finds a shortest way over links from one node to another.

        >>> import lakemark
        >>> links = lakemark.Table(getfixture("terms")).links("s", "p", "o")
        >>> [(row["node"], row["predicate"]) for row in links.path("cat", "animal", via="is_a").to_arrow().to_pylist()]
        [('cat', None), ('mammal', 'is_a'), ('animal', 'is_a')]

        Args:
            a: The node that it begins with.
            b: The node that it ends with.
            via: As for `out`.
            direction: Which way links are followed.
            max_depth: How many links it has at most.

        Returns:
            Rows `step`, `node`, and `predicate` (where links have one), which is that of the link to the node. None if
            there is no way. Of several ways it is always the same one.

        Raises:
            InvalidInputError: As for `out`.
            UnsupportedError: As for `out`.
        """
        given = _walk(via, direction, 0, None if max_depth is None else _depth(max_depth))

        def graph(rows: LinkRows) -> _graphs.Graph:
            steps = rows.to_arrow().to_pylist()
            ways = itertools.pairwise(steps)
            edges = [_graphs.Edge(one["node"], other["node"], other.get("predicate")) for one, other in ways]
            return _graphs.Graph({step["node"]: step["step"] for step in steps}, edges)

        return LinkRows(self._inner.path(_arrow.key_array([a]), _arrow.key_array([b]), given), graph)

    def _neighbours(self, x: object, given: WalkArguments) -> Rows:
        def graph(rows: LinkRows) -> _graphs.Graph:
            found = rows.to_arrow().to_pylist()
            places = {row["node"]: 1 for row in found} | {row["from"]: 0 for row in found}
            edges = [_graphs.Edge(row["from"], row["node"], row.get("predicate")) for row in found]
            return _graphs.Graph(places, edges)

        return LinkRows(self._inner.neighbours(_arrow.key_array(x), given), graph)


def _walk(
    via: object, direction: str, min_depth: int = 1, max_depth: int | None = None, limit: int | None = None
) -> WalkArguments:
    if limit is not None and limit < 0:
        raise InvalidInputError(f"limit is {limit}; give a number of rows, 0 or more")
    return {
        "via": None if via is None else _arrow.key_array(via),
        "direction": direction,
        "min_depth": min_depth,
        "max_depth": max_depth,
        "limit": limit,
    }


def _depth(depth: int) -> int:
    if not 0 <= depth < 1 << 32:
        raise InvalidInputError(f"the depth is {depth}; give a number of links, 0 or more")
    return depth


def _listed(nodes: object) -> list[Any]:
    """Nodes of an Arrow array as values."""
    import pyarrow as pa

    listed: list[Any] = pa.array(nodes).to_pylist()
    return listed

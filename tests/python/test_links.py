"""Walks over links from Python, against a closure of the rows."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

Link = tuple[str | None, str | None, str | None]


def graph(seed: int, links: int, nodes: int) -> list[Link]:
    """Links between few nodes: circles, a hub, links that are there twice, and ends that are NULL."""
    dice = random.Random(seed)  # noqa: S311
    names = [f"node {number:03}" for number in range(nodes)]

    def end() -> str | None:
        return None if dice.random() < 0.05 else names[0] if dice.random() < 0.1 else dice.choice(names)

    return [(end(), dice.choice(["a", "b", None]), end()) for _ in range(links)]


def write(path: Path, links: list[Link]) -> None:
    rows = {name: pa.array([link[place] for link in links], pa.string()) for place, name in enumerate("spo")}
    pq.write_table(pa.table({"id": pa.array(range(len(links)), pa.int64()), **rows}), path)


@pytest.fixture
def edges(tmp_path: Path) -> tuple[Path, list[Link]]:
    links = graph(1, 300, 40)
    folder = tmp_path / "edges"
    folder.mkdir()
    write(folder / "a.parquet", links[:200])
    write(folder / "b.parquet", links[200:])
    return folder, links


def closure(links: list[Link], start: str, via: str | None, *, back: bool = False) -> dict[str, int]:
    depths: dict[str, int] = {}
    waiting = deque([(start, 0)])
    while waiting:
        node, depth = waiting.popleft()
        for s, p, o in links:
            near, far = (o, s) if back else (s, o)
            if near == node and far is not None and (via is None or p == via) and far not in depths:
                depths[far] = depth + 1
                waiting.append((far, depth + 1))
    return depths


@pytest.mark.parametrize("is_indexed", [False, True])
def test_walks_are_those_of_the_rows(edges: tuple[Path, list[Link]], *, is_indexed: bool) -> None:
    folder, links = edges
    table = lakemark.Table(folder)
    if is_indexed:
        index = table.create_index(["s", "p", "o"], using="links", progress=False)
        assert (index.kind, index.encoding, index.coverage) == ("links", "linked", 1.0)
        assert [index.name for index in table.indexes] == ["s_p_o_links", "s_p_o_links_back"]
    walks = table.links("s", "p", "o")
    for start in ("node 000", "node 007", "nowhere"):
        for via in (None, "a", "none"):
            out = closure(links, start, via)
            found = walks.reach(start, via=via).to_arrow().to_pylist()
            assert {row["node"]: row["depth"] for row in found} == out
            assert [row["depth"] for row in found] == sorted(out.values())
            back = walks.reach(start, via=via, direction="in").to_arrow().to_pylist()
            assert {row["node"]: row["depth"] for row in back} == closure(links, start, via, back=True)
            near = {(p, o) for s, p, o in links if s == start and o is not None and (via is None or p == via)}
            rows = walks.out(start, via=via).to_arrow().to_pylist()
            assert sorted(map(str, near)) == sorted(str((row["predicate"], row["node"])) for row in rows)
            for end, depth in list(out.items())[:5]:
                path = walks.path(start, end, via=via).to_arrow().to_pylist()
                assert len(path) - 1 == (0 if start == end else depth)
    degrees = walks.degree("node 000").to_arrow().to_pylist()
    out_links = {link for link in links if link[0] == "node 000" and link[2] is not None}
    in_links = {link for link in links if link[2] == "node 000" and link[0] is not None}
    assert degrees == [{"node": "node 000", "out": len(out_links), "in": len(in_links)}]


def test_links_see_updates_and_new_files(edges: tuple[Path, list[Link]]) -> None:
    folder, _ = edges
    table = lakemark.Table(folder)
    table.create_index(["s", "p", "o"], using="links", progress=False)
    walks = table.links()
    assert repr(walks) == "Links('s', 'p', 'o')"
    assert walks.out("new").to_arrow().num_rows == 0
    write(folder / "c.parquet", [("new", "a", "newer")])
    assert walks.out("new").to_arrow()["node"].to_pylist() == ["newer"]


def test_walks_that_make_no_sense_are_errors(edges: tuple[Path, list[Link]]) -> None:
    folder, _ = edges
    table = lakemark.Table(folder)
    with pytest.raises(lakemark.NotFoundError, match="kind links"):
        table.links()
    with pytest.raises(lakemark.NotFoundError, match="nothing"):
        table.links("s", "nothing").out("x")
    walks = table.links("s", "p", "o")
    with pytest.raises(lakemark.InvalidInputError, match="max_depth"):
        walks.reach("node 000", max_depth=0)
    with pytest.raises(lakemark.InvalidInputError, match="depth"):
        walks.reach("node 000", min_depth=-1)
    with pytest.raises(lakemark.InvalidInputError, match="direction"):
        walks.reach("node 000", direction="up")  # type: ignore[arg-type]
    with pytest.raises(lakemark.UnsupportedError, match="memory"):
        table.links("s", "p", "o", memory=100).reach("node 000")
    with pytest.raises(lakemark.InvalidInputError, match="no predicate"):
        table.links("s", "o").out("node 000", via="a")
    with pytest.raises(lakemark.UnsupportedError, match="different types"):
        table.create_index(["id", "p", "o"], using="links", progress=False)


def test_few_nodes_are_drawn(edges: tuple[Path, list[Link]]) -> None:
    folder, _ = edges
    walks = lakemark.Table(folder).links("s", "p", "o")
    drawn = walks.out("node 003")._repr_html_()
    assert drawn.startswith("<svg")
    assert "<table" in drawn
    assert "<circle" in walks.reach("node 003", max_depth=1)._repr_html_()
    assert "<circle" not in walks.out("nowhere")._repr_html_()

"""Walks over links from Python, against a closure of the rows and recursive queries in DuckDB."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

import duckdb
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


Node = int | str


def literal(value: Node | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def random_edges(seed: int) -> tuple[list[Node], pa.Table]:
    """Circles, a hub, nodes that are linked with themselves, links that are there twice, and ends that are NULL."""
    dice = random.Random(seed)  # noqa: S311
    count = dice.choice([3, 12, 30])
    kinds: list[list[Node]] = [
        [(number - 4) * 7_919**3 for number in range(count)],
        [f"n{number}" for number in range(count)],
        ["long " * 160 + f"{number:03}" for number in range(count)],
    ]
    nodes = kinds[seed % 3]

    def end() -> Node | None:
        return None if dice.random() < 0.05 else dice.choice(nodes)

    rows = [(end(), dice.choice(["a", "b", None]), end()) for _ in range(dice.choice([10, 40, 400]))]
    rows += [(nodes[1], "a", node) for node in nodes] + [(node, "b", node) for node in nodes[::5]] + rows[::4]
    dice.shuffle(rows)
    columns = [[row[place] for row in rows] for place in range(3)]
    return nodes, pa.table({"s": columns[0], "p": pa.array(columns[1], pa.string()), "o": columns[2]})


def recursive(start: Node, via: str | None, direction: str, nodes: int) -> str:
    """What is reached, with the fewest links to each node, as SQL of any engine."""
    ends = {"out": "s AS near, p, o AS far", "in": "o AS near, p, s AS far"}
    sides = ends.values() if direction == "both" else [ends[direction]]
    rows = " UNION ALL ".join(f"SELECT {side} FROM t" for side in sides)
    wanted = "far IS NOT NULL" + (f" AND p = '{via}'" if via else "")
    begin = f"SELECT far, 1 FROM ({rows}) AS e WHERE near = {literal(start)} AND {wanted}"
    step = f"SELECT far, depth + 1 FROM reached JOIN ({rows}) AS e ON near = node WHERE {wanted} AND depth < {nodes}"
    least = "SELECT node, min(depth) AS depth FROM reached GROUP BY node ORDER BY depth, node"
    return f"WITH RECURSIVE reached(node, depth) AS ({begin} UNION {step}) {least}"


@pytest.mark.parametrize("seed", range(9))
def test_walks_over_random_graphs_are_recursive_queries_in_duckdb(tmp_path: Path, seed: int) -> None:
    nodes, rows = random_edges(seed)
    folder = tmp_path / "edges"
    folder.mkdir()
    half = rows.num_rows // 2
    pq.write_table(rows.slice(0, half), folder / "a.parquet")
    table = lakemark.Table(folder)
    table.create_index(["s", "p", "o"], using="links", progress=False)
    table.create_index("s", using="key", include=["p", "o"], progress=False)
    pq.write_table(rows.slice(half), folder / "b.parquet")
    if seed % 2:
        table.build(progress=False)
    judge = duckdb.connect()
    judge.execute(f"CREATE VIEW t AS SELECT * FROM '{folder}/*.parquet'")
    session = lakemark.connect()
    session.register("t", table)
    walks = table.links()
    for start in (nodes[0], nodes[1], nodes[-1]):
        for via in (None, "a"):
            for direction in ("out", "in", "both"):
                query = recursive(start, via, direction, len(nodes))
                expected = judge.execute(query).fetchall()
                found = walks.reach(start, via=via, direction=direction).to_arrow().to_pylist()
                assert [(row["node"], row["depth"]) for row in found] == expected
                call = f"reach('t', {literal(start)}, {literal(via)}, '{direction}')"
                asked = f"SELECT node, depth FROM {call} ORDER BY depth, node"
                for sql in (asked, query):
                    answer = session.sql(sql).to_arrow().to_pylist()
                    assert [(row["node"], row["depth"]) for row in answer] == expected, sql


def test_each_term_of_an_ontology_has_the_closure_of_its_parents(tmp_path: Path) -> None:
    """A small one of the shape of the Gene Ontology; `make test-ontologies` takes the whole one."""
    dice = random.Random(11)  # noqa: S311
    terms = [f"GO:{number * 37:07}" for number in range(150)]
    links: list[Link] = []
    above: dict[str, set[str]] = {terms[0]: set()}
    for number, term in enumerate(terms[1:], 1):
        parents = {terms[dice.randrange(number)] for _ in range(dice.choice([1, 1, 2, 3]))}
        # A term may have the same parent by several relations.
        links += [
            (term, relation, parent) for parent in parents for relation in dice.choice([["isa"], ["isa", "part of"]])
        ]
        above[term] = parents.union(*(above[parent] for parent in parents))
    dice.shuffle(links)
    folder = tmp_path / "terms"
    folder.mkdir()
    write(folder / "a.parquet", links[::2])
    write(folder / "b.parquet", links[1::2])
    table = lakemark.Table(folder)
    table.create_index(["s", "p", "o"], using="links", progress=False)
    walks = table.links()
    for term in terms:
        assert set(walks.reach(term).to_arrow()["node"].to_pylist()) == above[term]
        below = {other for other in terms if term in above[other]}
        assert set(walks.reach(term, via=["isa"], direction="in").to_arrow()["node"].to_pylist()) == below

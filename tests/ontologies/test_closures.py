"""Walks over the Gene Ontology and WordNet: `make test-ontologies`, with a download of 18 MB, not in CI.

The Gene Ontology comes with the closure of its terms, which its makers computed. WordNet says each link both ways, so
that its closure one way is that of the other links the other way.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakemark

FOLDER = Path(os.environ["LAKEMARK_ONTOLOGIES"])
# Terms whose closure is asked for in SQL as well.
IN_SQL = 200
OPPOSITE = {"@": "~", "@i": "~i"}

Closure = dict[str, set[str]]


def write(folder: Path, links: list[tuple[str, str, str]]) -> lakemark.Table:
    """A table of links in no order, in several files."""
    random.Random(7).shuffle(links)  # noqa: S311
    folder.mkdir()
    for part in range(4):
        own = links[part::4]
        columns = {name: pa.array([link[place] for link in own]) for place, name in enumerate("spo")}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet")
    table = lakemark.Table(folder)
    table.create_index(["s", "p", "o"], using="links", progress=False)
    return table


def closure_of(links: list[tuple[str, str, str]]) -> Closure:
    """What each node reaches."""
    following = defaultdict(set)
    for s, _, o in links:
        following[s].add(o)
    found: Closure = {}
    for node in list(following):
        seen: set[str] = set()
        last = {node}
        while last:
            last = set().union(*(following.get(near, ()) for near in last)) - seen
            seen |= last
        found[node] = seen
    return found


def reached(rows: lakemark.Rows) -> set[str]:
    return set(rows.to_arrow()["node"].to_pylist())


def go() -> tuple[list[tuple[str, str, str]], Closure]:
    """The links from terms to their parents, and the terms below each term."""
    database = sqlite3.connect(FOLDER / "GO.sqlite")
    terms = dict(database.execute("SELECT _id, go_id FROM go_term"))
    links, below = [], defaultdict(set)
    for ontology in ("bp", "mf", "cc"):
        parents = database.execute(f"SELECT _id, relationship_type, _parent_id FROM go_{ontology}_parents")
        links += [(terms[child], relation, terms[parent]) for child, relation, parent in parents]
        for term, offspring in database.execute(f"SELECT _id, _offspring_id FROM go_{ontology}_offspring"):
            below[terms[term]].add(terms[offspring])
    return links, below


def test_each_term_of_the_gene_ontology_has_the_closure_that_its_makers_computed(tmp_path: Path) -> None:
    links, below = go()
    assert sum(map(len, below.values())) > 500_000
    above = defaultdict(set)
    for term, offspring in below.items():
        for other in offspring:
            above[other].add(term)
    table = write(tmp_path / "go", links)
    table.create_index("o", using="key", include=["s", "p"], progress=False)
    walks = table.links()
    terms = sorted({end for s, _, o in links for end in (s, o)})
    for term in terms:
        assert reached(walks.reach(term, direction="in")) == below.get(term, set()), term
        assert reached(walks.reach(term)) == above.get(term, set()), term
    session = lakemark.connect()
    session.register("kb", table)
    for term in random.Random(1).sample(terms, IN_SQL):  # noqa: S311
        recursive = (
            f"WITH RECURSIVE found(node) AS (SELECT s FROM kb WHERE o = '{term}' UNION "
            "SELECT s FROM kb JOIN found ON o = node) SELECT node FROM found"
        )
        for sql in (recursive, f"SELECT node FROM reach('kb', '{term}', NULL, 'in')"):
            assert reached(session.sql(sql)) == below.get(term, set()), sql


def wordnet() -> list[tuple[str, str, str]]:
    """The links between nouns and between verbs: to what is more general (@, of an instance @i), and back (~, ~i)."""
    links = []
    for kind in ("noun", "verb"):
        for line in (FOLDER / "wordnet" / f"data.{kind}").read_text("ascii").splitlines():
            if line.startswith("  "):
                continue
            # Offset, file, kind, number of words, each with a number, number of pointers, each of four parts.
            parts = line.split(" | ")[0].split()
            at = 4 + 2 * int(parts[3], 16)
            for pointer in range(int(parts[at])):
                symbol, offset, of, _ = parts[at + 1 + 4 * pointer : at + 5 + 4 * pointer]
                if symbol in (*OPPOSITE, *OPPOSITE.values()):
                    links.append((f"{parts[2]}{parts[0]}", symbol, f"{of}{offset}"))
    return links


def test_the_closure_of_wordnet_is_the_same_by_the_links_back(tmp_path: Path) -> None:
    links = wordnet()
    assert len(links) > 150_000
    symbols, opposite = list(OPPOSITE), list(OPPOSITE.values())
    expected = closure_of([link for link in links if link[1] in symbols])
    assert sum(map(len, expected.values())) > 700_000
    walks = write(tmp_path / "wordnet", links).links()
    for synset, above in expected.items():
        assert reached(walks.reach(synset, via=symbols)) == above, synset
        assert reached(walks.reach(synset, via=opposite, direction="in")) == above, synset

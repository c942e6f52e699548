"""Triples in the shape of YAGO, and the six queries of section 6.5 of Athanassoulis (2013).

| fact | of whom |
|---|---|
| has child | each person but the first generation has two parents, who are at most one generation before |
| has gender, is citizen of | every person; few countries have many citizens |
| is in | places: a tree in which each place has eight others |
| takes part in | each event has four countries |
| acted in | every twentieth person is an actor with ten movies |
| has type | places, events and movies |
| three others | every person, with random objects |

Beside them is the graph of table 6.1 there: each node has 3 to 30 links to any nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept

if TYPE_CHECKING:
    from pathlib import Path

FILES = 4
SEED = 3
# Triples of a person, about.
FACTS = 8.0
# Generations of persons: parents are at most one before.
GENERATIONS = 50
COUNTRIES = 200
HAS_CHILD, HAS_GENDER, IS_CITIZEN, IS_IN, HAS_TYPE, TAKES_PART, ACTED_IN = range(1, 8)
OTHERS = (10, 11, 12)
# Links of a node of the graph, at least and at most.
DEGREES = (3, 30)
# What kinds of places, events and movies there are.
KINDS = {"place": 10, "event": 40, "movie": 5}


class Shape(NamedTuple):
    """What is asked: nodes that are linked with a start, once or over others, and that have another fact."""

    # The predicate that is followed, from subjects to objects or against it, once or as often as it goes.
    via: int
    is_out: bool
    is_far: bool
    # The predicate of the other fact; none if any node will do.
    fact: int | None


#: The queries, by their numbers in section 6.5.
SHAPES = {
    "1 citizens of a gender": Shape(IS_CITIZEN, is_out=False, is_far=False, fact=HAS_GENDER),
    "2 events of a type": Shape(TAKES_PART, is_out=True, is_far=False, fact=HAS_TYPE),
    "3 movies of a type": Shape(ACTED_IN, is_out=True, is_far=False, fact=HAS_TYPE),
    "4 places of a type": Shape(IS_IN, is_out=False, is_far=True, fact=HAS_TYPE),
    "5 tens of ancestors": Shape(HAS_CHILD, is_out=False, is_far=True, fact=None),
    "5 hundreds of ancestors": Shape(HAS_CHILD, is_out=False, is_far=True, fact=None),
    "5 thousands of ancestors": Shape(HAS_CHILD, is_out=False, is_far=True, fact=None),
    "6 ancestors of a gender": Shape(HAS_CHILD, is_out=False, is_far=True, fact=HAS_GENDER),
}


class Question(NamedTuple):
    """A shape with its start and, if it has another fact, the object of that."""

    shape: Shape
    start: int
    object: int = 0


class Places:
    """Where the nodes of each kind begin."""

    def __init__(self, persons: int) -> None:
        self.genders = persons
        self.countries = persons + 10
        self.places = 2 * persons
        self.others = 3 * persons
        self.events = 4 * persons
        self.movies = 5 * persons
        self.kinds = {kind: 6 * persons + 100 * place for place, kind in enumerate(KINDS)}


def typed(random: np.random.Generator, nodes: np.ndarray, kind: str, at: Places) -> tuple[np.ndarray, int, np.ndarray]:
    """The type of each node."""
    return nodes, HAS_TYPE, at.kinds[kind] + random.integers(0, KINDS[kind], len(nodes))


def triples(persons: int) -> pa.Table:
    """The triples, in no order, with a number each."""
    random, at = np.random.default_rng(SEED), Places(persons)
    ids, first = np.arange(persons), persons // GENERATIONS
    places = at.places + np.arange(persons // 10)
    events = at.events + np.arange(persons // 20)
    movies = at.movies + np.arange(persons // 10)
    facts = [(ids[first:] - random.integers(1, first, persons - first), HAS_CHILD, ids[first:]) for _ in range(2)]
    facts.append((ids, HAS_GENDER, at.genders + random.integers(0, 2, persons)))
    facts.append((ids, IS_CITIZEN, at.countries + np.minimum(random.zipf(1.3, persons), COUNTRIES)))
    facts.append((places[1:], IS_IN, places[0] + (np.arange(1, len(places)) - 1) // 8))
    for nodes, kind in ((places, "place"), (events, "event"), (movies, "movie")):
        facts.append(typed(random, nodes, kind, at))
    began = random.integers(0, COUNTRIES, len(events))
    facts += [(at.countries + 1 + (began + 17 * turn) % COUNTRIES, TAKES_PART, events) for turn in range(4)]
    actors, began = ids[::20], random.integers(0, len(movies), len(ids[::20]))
    facts += [(actors, ACTED_IN, movies[(began + turn * (len(movies) // 10)) % len(movies)]) for turn in range(10)]
    facts += [(ids, other, at.others + random.integers(0, persons, persons)) for other in OTHERS]
    order = random.permutation(sum(len(subjects) for subjects, _, _ in facts))
    s = np.concatenate([subjects for subjects, _, _ in facts])[order]
    p = np.concatenate([np.full(len(subjects), of, np.int32) for subjects, of, _ in facts])[order]
    o = np.concatenate([objects for _, _, objects in facts])[order]
    return pa.table({"id": np.arange(len(s)), "s": s.astype(np.int64), "p": p, "o": o.astype(np.int64)})


def nodes_of(links: int) -> int:
    """How many nodes the graph of about so many links has."""
    return max(2 * links // sum(DEGREES), 100)


def graph(links: int) -> pa.Table:
    """The graph of table 6.1, in no order."""
    random, nodes = np.random.default_rng(SEED), nodes_of(links)
    s = np.repeat(np.arange(nodes), random.integers(DEGREES[0], DEGREES[1] + 1, nodes))
    return pa.table({"s": random.permutation(s), "o": random.integers(0, nodes, len(s))})


def write_table(folder: Path, persons: int, order: tuple[str, ...] = ()) -> None:
    """Writes the triples, in an order if there is one; a complete table is kept."""
    with kept(folder) as is_missing:
        if is_missing:
            rows = triples(persons)
            write_files(folder, rows.sort_by([(column, "ascending") for column in order]) if order else rows)


def write_graph(folder: Path, links: int) -> None:
    """Writes the graph; a complete one is kept."""
    with kept(folder) as is_missing:
        if is_missing:
            write_files(folder, graph(links))


def write_files(folder: Path, rows: pa.Table) -> None:
    """Writes rows into files of one size."""
    for ordinal in range(FILES):
        first, last = len(rows) * ordinal // FILES, len(rows) * (ordinal + 1) // FILES
        path = folder / f"part-{ordinal}.parquet"
        pq.write_table(
            rows.slice(first, last - first), path, compression="zstd", row_group_size=1 << 20, write_page_index=True
        )


def files(folder: Path) -> list[str]:
    """The data files."""
    return sorted(str(path) for path in folder.glob("*.parquet"))


def questions(persons: int, probes: int, seed: int = 11) -> dict[str, list[Question]]:
    """Questions of each shape, none of them twice."""
    random, at = np.random.default_rng(seed), Places(persons)
    generation = persons // GENERATIONS

    def drawn(name: str, first: float, last: float, objects: int, count: int) -> list[Question]:
        start, end = int(first), max(int(last), int(first) + 1)
        starts = random.choice(np.arange(start, end), min(probes, end - start), replace=False)
        of = SHAPES[name]
        return [Question(of, int(node), objects + turn % count) for turn, node in enumerate(starts)]

    # Countries with few citizens, so that a join has few rows.
    found = {
        "1 citizens of a gender": drawn(
            "1 citizens of a gender", at.countries + COUNTRIES // 2, at.countries + COUNTRIES, at.genders, 2
        ),
        "2 events of a type": drawn(
            "2 events of a type", at.countries + 1, at.countries + COUNTRIES, at.kinds["event"], KINDS["event"]
        ),
        "4 places of a type": drawn(
            "4 places of a type", at.places + 8, at.places + persons // 100, at.kinds["place"], KINDS["place"]
        ),
        # Of a million persons these have 30, 150 and 2,700 ancestors: medians.
        "5 tens of ancestors": drawn("5 tens of ancestors", 2.2 * generation, 2.8 * generation, 0, 1),
        "5 hundreds of ancestors": drawn("5 hundreds of ancestors", 3.3 * generation, 3.7 * generation, 0, 1),
        "5 thousands of ancestors": drawn("5 thousands of ancestors", 5.1 * generation, 5.6 * generation, 0, 1),
        "6 ancestors of a gender": drawn("6 ancestors of a gender", 2.5 * generation, 3 * generation, at.genders, 2),
    }
    actors = drawn("3 movies of a type", 0, persons // 20, at.kinds["movie"], KINDS["movie"])
    found["3 movies of a type"] = [asked._replace(start=20 * asked.start) for asked in actors]
    return {name: found[name] for name in SHAPES}


def inner_places(persons: int, count: int, seed: int) -> list[int]:
    """Places in the last row of the tree, far from its root."""
    places = persons // 10
    first = Places(persons).places + places - places // 4
    return [int(place) for place in np.random.default_rng(seed).choice(places // 4, count, replace=False) + first]


def as_sql(question: Question) -> str:
    """The question in SQL that every engine knows: how many nodes there are, and their sum."""
    via, is_out, is_far, fact = question.shape
    near, far = ("s", "o") if is_out else ("o", "s")
    other = f"b.p = {fact} AND b.o = {question.object}"
    if not is_far:
        return (
            f"SELECT count(*), sum(a.{far}) FROM kb a JOIN kb b ON a.{far} = b.s "
            f"WHERE a.{near} = {question.start} AND a.p = {via} AND {other}"
        )
    found = (
        f"WITH RECURSIVE found(node) AS (SELECT {far} FROM kb WHERE {near} = {question.start} AND p = {via} UNION "
        f"SELECT {far} FROM kb JOIN found ON {near} = node WHERE p = {via}) SELECT count(*), sum(node) FROM found"
    )
    return found if fact is None else f"{found} JOIN kb b ON node = b.s WHERE {other}"


def as_functions(question: Question) -> str:
    """The question by the table functions `links` and `reach`."""
    via, is_out, is_far, fact = question.shape
    name, direction = "reach" if is_far else "links", "out" if is_out else "in"
    nodes = f"{name}('kb', {question.start}, {via}, '{direction}') a"
    if fact is None:
        return f"SELECT count(*), sum(a.node) FROM {nodes}"
    where = f"b.p = {fact} AND b.o = {question.object}"
    return f"SELECT count(*), sum(a.node) FROM {nodes} JOIN kb b ON a.node = b.s WHERE {where}"


def as_sparql(question: Question, of: str) -> str:
    """The question in SPARQL, with names that begin so."""
    via, is_out, is_far, fact = question.shape
    path = f"<{of}p{via}>{'+' if is_far else ''}"
    start = f"<{of}{question.start}>"
    pattern = f"{start} {path} ?x" if is_out else f"?x {path} {start}"
    other = f"?x <{of}p{fact}> <{of}{question.object}>"
    if fact is None:
        return f"SELECT ?x WHERE {{ {pattern} }}"
    # Joined, the path is walked for each node that has the other fact.
    return f"SELECT ?x WHERE {{ {pattern} {f'FILTER EXISTS {{ {other} }}' if is_far else f'. {other}'} }}"


def as_cypher(question: Question) -> str:
    """The question in Cypher, with nodes `N` and links `p1`, `p2` and so on."""
    via, is_out, is_far, fact = question.shape
    link = f"[:p{via}{'* SHORTEST 1..255' if is_far else ''}]"
    way = f"-{link}->" if is_out else f"<-{link}-"
    other = "" if fact is None else f"-[:p{fact}]->(:N {{id: {question.object}}})"
    return f"MATCH (:N {{id: {question.start}}}){way}(x:N){other} RETURN count(*), sum(x.id)"

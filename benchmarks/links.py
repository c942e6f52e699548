"""Walks over links: `make bench NAME=links [ROWS=8000000]`.

Writes about so many triples in the shape of YAGO, and asks the six queries of section 6.5 of Athanassoulis (2013):
citizens, events and movies by joins, places and ancestors by recursion. Lakemark answers by its calls, by its table
functions, and as unchanged SQL. Beside it stand DataFusion's own package, DuckDB on the Parquet files and on its own
table, and Oxigraph and Ladybug if they are installed. Same process, in turn, equal answers; no question comes twice.

Before that it measures what an index takes (with its rows, and where the table is in the order of links), cold walks
beside single reads of the disk, and paths over the graph of table 6.1 by 1 to 192 tasks. Behind it come 1 to 32 clients
at once, walks after 5% of the rows were updated, and joins of many rows, which no index helps. All numbers stand beside
the goals.

It goes in stages. A run that was stopped goes on behind the last stage that it ended, unless the library is another
one. Tables and copies of peers are kept.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import links_engines
import links_reads
import links_report
import links_table
import measure
import numpy as np
import pyarrow.parquet as pq
from links_goals import CHAIN, FUNCTIONS, UPDATED, judged
from links_reads import Walked
from stages import Stages

import lakemark

if TYPE_CHECKING:
    from links_engines import Engine, Peer
    from links_table import Question
    from stages import Tell

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
# Of the rows so many are updated.
SHARE_UPDATED = 0.05
# What each build may keep in memory.
BUILD_BYTES = 1 << 30
COLD = ("5 tens of ancestors", "5 thousands of ancestors")
# Questions that are asked cold, at most.
MOST_COLD = 10
# The stores, and in each of them the indexes: what each is on, its kind, and what it includes.
STORES = {
    "links": {"walk": ("s,p,o", "links", ""), "on_s": ("s", "key", ""), "on_o": ("o", "key", "")},
    "keys": {"by_s": ("s", "key", "p,o"), "by_o": ("o", "key", "s,p")},
}
WALK = STORES["links"]["walk"]
# Joins of many rows: a hash join is right, and an index must not be in the way.
JOINS = {
    "children": "SELECT count(*), sum(b.o) FROM kb a JOIN kb b ON a.o = b.s WHERE a.p = 1 AND b.p = 2",
    "persons": "SELECT count(*), sum(a.s) FROM kb a JOIN kb b ON a.s = b.s WHERE a.p = 3 AND b.p = 10",
}

BUILD = """
import json, sys, measure, lakemark
folder, store, memory, name, columns, using, include = sys.argv[1:]
table = lakemark.Table(folder, store=store)
options = {"include": include.split(",")} if include else {}

def build():
    table.create_index(columns.split(","), using=using, name=name, build=False, **options)
    table.build(int(memory), index=name, progress=False)

before = measure.process_memory("VmHWM")
_, cost = measure.measure(build)
print(json.dumps({
    "wall_seconds": cost.wall_seconds, "cpu_seconds": cost.cpu_seconds, "memory_bytes": int(memory),
    "before_bytes": before, "peak_bytes": measure.process_memory("VmHWM"),
    "bytes": {index.name: index.bytes for index in table.indexes if index.name.startswith(name)},
}))
"""


class Bench:
    """The stages over a table of about so many triples."""

    def __init__(self, given: argparse.Namespace, stages: Stages) -> None:
        self.given, self.stages = given, stages
        self.persons = max(int(given.rows / links_table.FACTS), 2_000)
        self.folder = CACHE / f"triples-{self.persons}"
        self.graph = CACHE / f"graph-{given.rows}"

    def store(self, name: str, folder: Path | None = None) -> Path:
        """Where indexes of a table are."""
        of = folder or self.folder
        return of.with_name(f"{of.name}-indexes-{name}")

    @functools.cached_property
    def peers(self) -> dict[str, Peer]:
        """The engines beside us, opened when the first question is asked."""
        return links_engines.peers(self.folder, self.rows, lambda _: None)

    @functools.cached_property
    def rows(self) -> int:
        """How many triples there are."""
        return sum(pq.read_metadata(path).num_rows for path in links_table.files(self.folder))

    def questions(self, seed: int) -> dict[str, list[Question]]:
        """Questions that no other seed has."""
        # One more, which warms.
        return links_table.questions(self.persons, self.given.probes + 1, seed)

    def write(self, tell: Tell) -> dict[str, Any]:
        """Writes the tables."""
        links_table.write_table(self.folder, self.persons)
        tell(0.3)
        for order in (("s", "p", "o"), ("o", "p", "s")):
            links_table.write_table(self.in_order(order), self.persons, order)
        tell(0.9)
        links_table.write_graph(self.graph, self.given.rows)
        return {"parquet_bytes": sum(Path(path).stat().st_size for path in links_table.files(self.folder))}

    def in_order(self, order: tuple[str, ...]) -> Path:
        """The table in the order of columns."""
        return CACHE / f"triples-{self.persons}-{''.join(order)}"

    def build(self, tell: Tell) -> dict[str, Any]:
        """Builds all indexes."""
        built: dict[str, Any] = {}
        for store, indexes in STORES.items():
            built |= build(self.folder, self.store(store), indexes)
            tell(len(built) / 6)
        build(self.graph, self.store("links", self.graph), {"walk": ("s,o", "links", "")})
        return built

    def build_in_order(self, tell: Tell) -> float:
        """Bytes of links for a triple, both ways, where the table is in their order and rows take none."""
        without = 0.0
        for name, order in (("walk", ("s", "p", "o")), ("walk_back", ("o", "p", "s"))):
            folder = self.in_order(order)
            built = build(folder, self.store("links", folder), {"walk": WALK})
            without += built["walk"]["bytes"][name] / self.rows
            tell(0.5)
        return without

    def walk_cold(self, tell: Tell) -> dict[str, Any]:
        """Cold walks, beside what the disk can do."""
        count = min(self.given.probes, MOST_COLD)
        questions = links_table.questions(self.persons, count, seed=23)
        walks = {CHAIN: Walked("out", links_table.IS_IN, links_table.inner_places(self.persons, count, seed=23))}
        walks |= {
            name: Walked("in", links_table.HAS_CHILD, [question.start for question in questions[name]]) for name in COLD
        }
        store = self.store("links")
        cold = {name: links_reads.cold(self.folder, store, walked, tell) for name, walked in walks.items()}
        return {"disk": links_reads.disk(store), "cold": cold}

    def follow_paths(self, tell: Tell) -> list[dict[str, Any]] | None:
        """Paths over the graph of table 6.1."""
        nodes = links_table.nodes_of(self.given.rows)
        return links_reads.paths(self.graph, self.store("links", self.graph), nodes, tell)

    def open_peers(self, tell: Tell) -> dict[str, Any]:
        """What the engines beside us took to load, if they were loaded now, and the bytes of their links."""
        self.peers = links_engines.peers(self.folder, self.rows, tell)
        return {name: {"seconds": peer.seconds, "bytes": peer.bytes} for name, peer in self.peers.items()}

    def ask(self, name: str, tell: Tell) -> dict[str, Any]:
        """Asks questions of a shape."""
        engines = links_engines.ours(self.folder, self.store("links"), self.store("keys"))
        engines |= {peer: opened.engine for peer, opened in self.peers.items()}
        questions = self.questions(seed=11)[name]
        return links_engines.ask_in_turn(engines, questions, self.given.rounds, self.given.most_seconds, tell)

    def clients(self, tell: Tell) -> dict[str, Any]:
        """Clients at once."""
        # What follows is ours alone.
        self.__dict__.pop("peers", None)
        mixed = [question for each in self.questions(seed=31).values() for question in each]
        return links_engines.clients(self.folder, self.store("links"), mixed, self.given.seconds, tell)

    def update(self, tell: Tell) -> dict[str, Any]:
        """Updates a part of the rows to what they are, in stores of their own."""
        random = np.random.default_rng(17)
        parts = [pq.read_table(path) for path in links_table.files(self.folder)]
        updates = [
            rows.take(np.sort(random.choice(len(rows), int(len(rows) * SHARE_UPDATED), replace=False)))
            for rows in parts
        ]
        for place, name in enumerate(STORES):
            changed = self.store(f"{name}-updated")
            shutil.rmtree(changed, ignore_errors=True)
            shutil.copytree(self.store(name), changed)
            table = lakemark.Table(self.folder, store=changed)
            table.declare_key("id", progress=False)
            for rows in updates:
                table.upsert(rows)
            table.flush()
            tell((place + 1) / len(STORES))
        return {"rows": sum(map(len, updates))}

    def ask_updated(self, name: str, tell: Tell) -> dict[str, Any]:
        """The same questions of the table with its updates and without."""
        engines: dict[str, Engine] = {}
        for end in ("", "-updated"):
            of = links_engines.ours(self.folder, *(self.store(f"{store}{end}") for store in STORES))
            engines |= {f"{way}{UPDATED if end else ''}": engine for way, engine in of.items() if way != FUNCTIONS}
        questions = self.questions(seed=41)[name]
        return links_engines.ask_in_turn(engines, questions, self.given.rounds, self.given.most_seconds / 3, tell)

    def join(self, tell: Tell) -> dict[str, Any]:
        """Joins of many rows with indexes and without."""
        found: dict[str, Any] = {}
        for store in STORES:
            asks = {name: self.joined(store, is_indexed=name == "with indexes") for name in ("with indexes", "without")}
            _, costs = measure.interleave(asks, list(JOINS.values()), self.given.rounds)
            for place, name in enumerate(JOINS):
                medians = measure.medians(costs, [place])
                found[f"{name}, {store}"] = {way: cost["wall_seconds"] * 1e3 for way, cost in medians.items()}
            tell(len(found) / (len(STORES) * len(JOINS)))
        return found

    def joined(self, store: str, *, is_indexed: bool) -> Any:  # noqa: ANN401 - what takes a statement
        """A session over the table, with its indexes or without."""
        session = lakemark.connect()
        session.sql(f"SET lakemark.use_index = {str(is_indexed).lower()}")
        session.table(self.folder, name="kb", store=self.store(store))
        return lambda sql: [column[0].as_py() for column in session.sql(sql).to_arrow().columns]

    def run(self) -> dict[str, Any]:
        """All stages."""
        run, shapes = self.stages.run, links_table.SHAPES
        written, built = run("tables", self.write), run("builds", self.build)
        without = run("builds in order", self.build_in_order)
        cold, paths = run("cold walks", self.walk_cold), run("paths", self.follow_paths)
        peers = run("peers", self.open_peers)
        asked = {name: run(name, functools.partial(self.ask, name)) for name in shapes}
        clients, changes = run("clients", self.clients), run("updates", self.update)
        updated = {name: run(f"{name}{UPDATED}", functools.partial(self.ask_updated, name)) for name in shapes}
        return {
            "benchmark": "walks over links",
            "rows": self.rows,
            "rounds": self.given.rounds,
            "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
            "machine": measure.machine(),
            "versions": links_engines.versions(),
            **written,
            "indexes": built,
            "bytes_per_triple": {
                "links, with rows": sum(built["walk"]["bytes"].values()) / self.rows,
                "links, without rows": without,
                **{name: sum(built[name]["bytes"].values()) / self.rows for name in STORES["keys"]},
                **{name: peer["bytes"] / self.rows for name, peer in peers.items() if peer["bytes"]},
            },
            "load_seconds": {name: peer["seconds"] for name, peer in peers.items() if peer["seconds"]},
            **cold,
            "paths": paths,
            "asked": asked,
            "clients": clients,
            "updates": changes,
            "updated": updated,
            "left_alone": run("joins", self.join),
        }


def build(folder: Path, store: Path, indexes: dict[str, tuple[str, str, str]]) -> dict[str, Any]:
    """Builds indexes in a new store, each in a process of its own, so that its peak of memory is known."""
    shutil.rmtree(store, ignore_errors=True)
    return {
        name: measure.run_apart(BUILD, str(folder), str(store), str(BUILD_BYTES), name, *index)
        for name, index in indexes.items()
    }


def library() -> list[float]:
    """What tells a build of the library from others."""
    from lakemark import _internal

    found = Path(str(_internal.__file__)).stat()
    return [found.st_size, found.st_mtime]


def stage_names() -> list[str]:
    """The stages, in their order."""
    first = ["tables", "builds", "builds in order", "cold walks", "paths", "peers"]
    return [
        *first,
        *links_table.SHAPES,
        "clients",
        "updates",
        *(f"{name}{UPDATED}" for name in links_table.SHAPES),
        "joins",
    ]


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=800_000, help="triples, about (8,000,000 for the goals)")
    parser.add_argument("--rounds", type=int, default=9, help="questions of each shape that every engine is asked")
    parser.add_argument("--probes", type=int, default=60, help="questions of each shape that fast engines are asked")
    parser.add_argument("--most-seconds", type=float, default=3.0, help="beyond the rounds, of an engine and a shape")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each number of clients")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for tables, JSON and plot")
    parser.add_argument("--fresh", action="store_true", help="forget what a run that was stopped has measured")
    given = parser.parse_args()
    given.probes = max(given.probes, given.rounds)
    if given.rounds < 5:
        print("fewer than 5 rounds have no meaningful median")
    return given


def main() -> None:
    """Runs the benchmark, or the rest of it."""
    given = arguments()
    name = f"links-{given.rows}"
    of = {key: value for key, value in vars(given).items() if key not in {"results", "fresh"}}
    of |= {"library": library(), "versions": links_engines.versions(), "data": str(CACHE)}
    stages = Stages(given.results / f"{name}.partial", of, stage_names())
    if given.fresh:
        stages.forget()
        stages = Stages(given.results / f"{name}.partial", of, stage_names())
    try:
        result = Bench(given, stages).run()
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on behind the last stage that has ended") from None
    result["stages"] = stages.seconds
    result["goals"] = [goal._asdict() for goal in judged(result)]
    links_report.publish(result, given.results, name)
    stages.forget()


if __name__ == "__main__":
    main()

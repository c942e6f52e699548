"""Walks over links: `make bench NAME=links [ROWS=8000000]`.

Writes about so many triples in the shape of YAGO: persons with two parents, a gender and a citizenship, places in a
tree, and facts beside them. Questions are the ancestors of a person (tens and thousands), the places within a place,
and the citizens of a country with a gender. Lakemark answers by its call, by the table function, and as unchanged SQL.
Beside it stand DataFusion's own package, DuckDB on the Parquet files and on its own table, and Oxigraph if it is
installed. Same process, in turn, equal answers; no question comes twice. Reported are medians of each engine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import datafusion
import duckdb
import matplotlib as mpl
import measure
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kept import kept

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[["Question"], list[int]]

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
FILES = 4
SEED = 3
# Triples of a person, about.
FACTS = 8.06
# Generations of persons: parents are at most one before.
GENERATIONS = 50
COUNTRIES = 200
HAS_CHILD, HAS_GENDER, IS_CITIZEN, IS_IN, OTHER = 1, 2, 3, 4, 10
# Oxigraph keeps triples in memory, and takes minutes to load more than these.
MOST_TRIPLES_OF_OXIGRAPH = 2_000_000

BUILD = """
import json, sys, measure, lakemark
folder, store, name, columns, using, include = sys.argv[1:]
table = lakemark.Table(folder, store=store)
options = {"include": include.split(",")} if include else {}
_, cost = measure.measure(
    lambda: table.create_index(columns.split(","), using=using, name=name, progress=False, **options)
)
known = {index.name: index.bytes for index in table.indexes}
print(json.dumps({
    "wall_seconds": cost.wall_seconds, "cpu_seconds": cost.cpu_seconds, "peak_bytes": measure.process_memory("VmHWM"),
    "bytes": sum(bytes for own, bytes in known.items() if own.startswith(name)),
}))
"""


class Question(NamedTuple):
    """What is asked: the links that are followed against their direction from a node, or a join of two facts."""

    start: int
    # The predicate of a walk; none for citizens with a gender.
    via: int | None
    gender: int = 0


def triples(persons: int) -> pa.Table:
    """The triples, in no order."""
    random = np.random.default_rng(SEED)
    ids, places = np.arange(persons), np.arange(persons // 10) + 2 * persons
    first = persons // GENERATIONS
    facts = [(ids[first:] - random.integers(1, first, persons - first), HAS_CHILD, ids[first:]) for _ in range(2)]
    facts.append((ids, HAS_GENDER, persons + random.integers(0, 2, persons)))
    facts.append((ids, IS_CITIZEN, persons + 10 + np.minimum(random.zipf(1.3, persons), COUNTRIES)))
    facts.append((places[1:], IS_IN, places[0] + (np.arange(1, len(places)) - 1) // 8))
    facts += [(ids, OTHER + kind, 3 * persons + random.integers(0, persons, persons)) for kind in range(4)]
    order = random.permutation(sum(len(subjects) for subjects, _, _ in facts))
    s = np.concatenate([subjects for subjects, _, _ in facts])[order]
    p = np.concatenate([np.full(len(subjects), of, np.int32) for subjects, of, _ in facts])[order]
    o = np.concatenate([objects for _, _, objects in facts])[order]
    return pa.table({"s": s.astype(np.int64), "p": p, "o": o.astype(np.int64)})


def write_table(folder: Path, persons: int) -> None:
    """Writes the table; a complete one is kept."""
    with kept(folder) as is_missing:
        if not is_missing:
            return
        rows = triples(persons)
        for ordinal in range(FILES):
            first, last = len(rows) * ordinal // FILES, len(rows) * (ordinal + 1) // FILES
            part = rows.slice(first, last - first)
            path = folder / f"part-{ordinal}.parquet"
            pq.write_table(part, path, compression="zstd", row_group_size=1 << 20, write_page_index=True)


def questions(persons: int, probes: int) -> dict[str, list[Question]]:
    """Questions of each shape, none of them twice."""
    random = np.random.default_rng(11)
    generation = persons // GENERATIONS

    def persons_of(first: float, last: float) -> list[Question]:
        drawn = random.choice(np.arange(int(first * generation), int(last * generation)), probes, replace=False)
        return [Question(int(person), HAS_CHILD) for person in drawn]

    places = 2 * persons + random.choice(np.arange(8, persons // 100), probes, replace=False)
    citizens = random.choice(np.arange(COUNTRIES // 2, COUNTRIES), min(probes, COUNTRIES // 2), replace=False)
    return {
        "tens of ancestors": persons_of(2, 2.5),
        "thousands of ancestors": persons_of(5, 6.5),
        "places within": [Question(int(place), IS_IN) for place in places],
        "citizens with gender": [
            Question(persons + 10 + int(country), None, persons + place % 2) for place, country in enumerate(citizens)
        ],
    }


def as_sql(question: Question) -> str:
    """The question in SQL that every engine knows."""
    start, via = question.start, question.via
    if via is None:
        return (
            f"SELECT count(*), sum(c.s) FROM kb c JOIN kb g ON c.s = g.s "
            f"WHERE c.p = {IS_CITIZEN} AND c.o = {start} AND g.p = {HAS_GENDER} AND g.o = {question.gender}"
        )
    return (
        f"WITH RECURSIVE found(node) AS (SELECT s FROM kb WHERE o = {start} AND p = {via} UNION "
        f"SELECT s FROM kb JOIN found ON o = node WHERE p = {via}) SELECT count(*), sum(node) FROM found"
    )


def files(folder: Path) -> list[str]:
    """The data files."""
    return sorted(str(path) for path in folder.glob("*.parquet"))


def summed(nodes: pa.ChunkedArray | pa.Array) -> list[int]:
    """How many there are, and their sum."""
    return [len(nodes), pc.sum(nodes).as_py() or 0]


def by_lakemark(folder: Path, store: Path) -> dict[str, Ask]:
    """The call, the table function, and unchanged SQL."""
    links = lakemark.Table(folder, store=store).links("s", "p", "o")
    session = lakemark.connect()
    session.table(folder, name="kb", store=store)

    def row(sql: str) -> list[int]:
        columns = session.sql(sql).to_arrow().columns
        return [column[0].as_py() or 0 for column in columns]

    def call(question: Question) -> list[int]:
        if question.via is None:
            citizens = links.into(question.start, via=IS_CITIZEN).to_arrow()["node"]
            genders = links.out(citizens.combine_chunks(), via=HAS_GENDER).to_arrow()
            return summed(genders.filter(pc.equal(genders["node"], question.gender))["from"])
        return summed(links.reach(question.start, via=question.via, direction="in").to_arrow()["node"])

    def function(question: Question) -> list[int]:
        start, via = question.start, question.via
        if via is None:
            citizens = f"links('kb', {start}, {IS_CITIZEN}, 'in') c"
            where = f"g.p = {HAS_GENDER} AND g.o = {question.gender}"
            return row(f"SELECT count(*), sum(c.node) FROM {citizens} JOIN kb g ON c.node = g.s WHERE {where}")
        return row(f"SELECT count(*), sum(node) FROM reach('kb', {start}, {via}, 'in')")

    return {"lakemark call": call, "lakemark reach()": function, "lakemark SQL": lambda asked: row(as_sql(asked))}


def by_oxigraph(folder: Path) -> Ask:
    """Oxigraph with all triples in memory."""
    import pyoxigraph

    store = pyoxigraph.Store()
    of = "http://example.com/"
    for path in files(folder):
        rows = pq.read_table(path).to_pydict()
        each = zip(rows["s"], rows["p"], rows["o"], strict=True)
        lines = "\n".join(f"<{of}{s}> <{of}p{p}> <{of}{o}> ." for s, p, o in each)
        store.bulk_load(lines.encode(), pyoxigraph.RdfFormat.N_TRIPLES)

    def ask(question: Question) -> list[int]:
        pattern = f"?x <{of}p{question.via}>+ <{of}{question.start}>"
        if question.via is None:
            citizen, gender = f"<{of}p{IS_CITIZEN}> <{of}{question.start}>", f"<{of}p{HAS_GENDER}>"
            pattern = f"?x {citizen} . ?x {gender} <{of}{question.gender}>"
        found = store.query(f"SELECT ?x WHERE {{ {pattern} }}")
        nodes = [int(solution["x"].value.rpartition("/")[2]) for solution in found]  # type: ignore[index, union-attr]
        return [len(nodes), sum(nodes)]

    return ask


def engines(folder: Path, store: Path, rows: int) -> dict[str, Ask]:
    """Each engine's answers."""
    context, parquet = datafusion.SessionContext(), duckdb.connect()
    context.register_parquet("kb", str(folder))
    parquet.execute(f"CREATE VIEW kb AS SELECT * FROM read_parquet({files(folder)})")
    copy = folder.with_name(f"{folder.name}-duckdb")
    with kept(copy) as is_missing:
        native = duckdb.connect(str(copy / "kb.duckdb"))
        if is_missing:
            native.execute(f"CREATE TABLE kb AS SELECT * FROM read_parquet({files(folder)})")
            native.execute("CHECKPOINT")

    def by_datafusion(question: Question) -> list[int]:
        batch = next(batch for batch in context.sql(as_sql(question)).collect() if batch.num_rows)
        return [column[0].as_py() or 0 for column in batch.columns]

    def by_duckdb(connection: duckdb.DuckDBPyConnection) -> Ask:
        def ask(question: Question) -> list[int]:
            row = connection.execute(as_sql(question)).fetchone()
            return [int(value or 0) for value in row or ()]

        return ask

    found = {
        **by_lakemark(folder, store),
        "datafusion": by_datafusion,
        "duckdb parquet": by_duckdb(parquet),
        "duckdb native": by_duckdb(native),
    }
    if rows > MOST_TRIPLES_OF_OXIGRAPH:
        print(f"Oxigraph is left out above {MOST_TRIPLES_OF_OXIGRAPH:,} triples")
    elif importlib.util.find_spec("pyoxigraph") is None:
        print("Oxigraph is not installed and is left out: pip install pyoxigraph")
    else:
        found["oxigraph"] = by_oxigraph(folder)
    return found


def run(rows: int, probes: int) -> dict[str, Any]:
    """Writes, builds, measures."""
    persons = max(int(rows / FACTS), 10_000)
    folder = CACHE / f"links-{persons}"
    write_table(folder, persons)
    count = sum(pq.read_metadata(path).num_rows for path in files(folder))
    store = folder.with_name(f"{folder.name}-indexes")
    shutil.rmtree(store, ignore_errors=True)
    built = {
        name: measure.run_apart(BUILD, str(folder), str(store), name, columns, using, include)
        for name, columns, using, include in (
            ("walk", "s,p,o", "links", ""),
            ("by_s", "s", "key", "p,o"),
            ("by_o", "o", "key", "s,p"),
        )
    }
    asks = engines(folder, store, count)
    asked = {
        name: measure.look_up(asks, each, lambda _, answer: len(answer) == 2)
        for name, each in questions(persons, probes).items()
    }
    return {
        "benchmark": "walks over links",
        "rows": count,
        "probes": probes,
        "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
        "machine": measure.machine(),
        "versions": {
            "lakemark": lakemark.__version__,
            "datafusion": datafusion.__version__,
            "duckdb": duckdb.__version__,
        },
        "indexes": {name: {**cost, "bytes_per_triple": cost["bytes"] / count} for name, cost in built.items()},
        "asked": asked,
    }


def report(result: dict[str, Any]) -> None:
    """Prints the result as tables."""
    print(f"{result['rows']:,} triples")
    for name, index in result["indexes"].items():
        nanoseconds = index["cpu_seconds"] / result["rows"] * 1e9
        print(
            f"{name:8}{index['bytes'] / 1e6:8.1f} MB, {index['bytes_per_triple']:.2f} B/triple, "
            f"{index['wall_seconds']:.1f} s, {nanoseconds:.0f} ns of CPU a triple, {index['peak_bytes'] / 1e6:.0f} MB"
        )
    print(f"\n{'':26}{'':18}{'median ms':>10}{'p99 ms':>10}{'CPU ms':>10}{'x':>8}")
    for name, costs in result["asked"].items():
        ours = costs["lakemark SQL"]["wall_ms"]
        for engine, cost in costs.items():
            print(
                f"{name:26}{engine:18}{cost['wall_ms']:10.2f}{cost['wall_ms_p99']:10.2f}{cost['cpu_ms']:10.2f}"
                f"{cost['wall_ms'] / ours:8.1f}"
            )


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the median of each engine for each shape of question."""
    asked = result["asked"]
    names = list(next(iter(asked.values())))
    figure, axis = plt.subplots(figsize=(11, 4.8))
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        places = np.arange(len(asked)) + (place - len(names) / 2 + 0.5) * width
        axis.bar(places, [costs[name]["wall_ms"] for costs in asked.values()], width, label=name)
    axis.set_xticks(np.arange(len(asked)), list(asked))
    axis.set_yscale("log")
    axis.set_ylabel("median, ms (log)")
    axis.set_title(f"{result['rows']:,} triples")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=800_000, help="triples of the table, about")
    parser.add_argument("--probes", type=int, default=20, help="questions of each shape")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for JSON and plot")
    arguments = parser.parse_args()
    result = run(arguments.rows, arguments.probes)
    report(result)
    measure.publish(arguments.results, f"links-{arguments.rows}", result, plot)


if __name__ == "__main__":
    main()

"""The engines that are asked about links: Lakemark by calls, functions and SQL, tables of others, and graph stores.

All of them have their tables open and their indexes built before they are asked. What is timed ends when the process
has the nodes, or how many there are with their sum: each engine counts where that is cheapest for it.

DuckDB and DataFusion are as they come. Indexes of DuckDB's own on both ends, its cache of metadata, and DataFusion's
filters within the scan change what these queries take by a tenth.
"""

from __future__ import annotations

import importlib.util
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import closed_loop
import datafusion
import duckdb
import links_table
import measure
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kept import kept
from links_goals import BY_KEYS, BY_LINKS, CALL, FUNCTIONS

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from links_table import Question
    from stages import Tell

# Oxigraph in memory takes some 340 bytes a triple there, and is loaded by each run.
MOST_TRIPLES_IN_MEMORY = 10_000_000
# Of the memory Ladybug would take four fifths for its pages.
LADYBUG_BYTES = 2 << 30
# What peers other than tables are called by their packages, and by us.
GRAPH_STORES = {"pyoxigraph": "oxigraph", "ladybug": "ladybug"}
# What names begin with in Oxigraph.
NAMES = "http://e/"
CLIENTS = (1, 2, 4, 8, 16, 32)


def as_it_is(found: Any) -> list[int]:  # noqa: ANN401 - what the engine gave
    """An answer that is a row already."""
    return [int(value or 0) for value in found]


class Engine(NamedTuple):
    """How an engine is asked, which is timed, and what its answer says, which is not."""

    ask: Callable[[Question], Any]
    #: How many nodes there are, and their sum.
    answer: Callable[[Any], list[int]] = as_it_is


class Peer(NamedTuple):
    """An engine beside us: what it took to load, and the bytes of its own links."""

    engine: Engine
    seconds: float | None = None
    bytes: int | None = None


def summed(nodes: pa.Array | pa.ChunkedArray) -> list[int]:
    """How many there are, and their sum."""
    return [len(nodes), pc.sum(nodes).as_py() or 0]


def by_call(links: lakemark.Links) -> Engine:
    """The calls of Python."""

    def ask(question: Question) -> pa.Array | pa.ChunkedArray:
        via, is_out, is_far, fact = question.shape
        if is_far:
            found = links.reach(question.start, via=via, direction="out" if is_out else "in")
        else:
            found = (links.out if is_out else links.into)(question.start, via=via)
        nodes = found.to_arrow()["node"]
        if fact is None or not len(nodes):
            return nodes
        facts = links.out(nodes.combine_chunks(), via=fact).to_arrow()
        return facts.filter(pc.equal(facts["node"], question.object))["from"]

    return Engine(ask, summed)


def by_sql(folder: Path, store: Path, said: Callable[[Question], str]) -> Engine:
    """Statements over one of our tables."""
    session = lakemark.connect()
    session.table(folder, name="kb", store=store)
    return Engine(lambda question: [column[0].as_py() for column in session.sql(said(question)).to_arrow().columns])


def ours(folder: Path, links: Path, keys: Path) -> dict[str, Engine]:
    """Lakemark: with indexes of links in a store, and with keys that include the other columns in another one."""
    return {
        CALL: by_call(lakemark.Table(folder, store=links).links("s", "p", "o")),
        FUNCTIONS: by_sql(folder, links, links_table.as_functions),
        BY_LINKS: by_sql(folder, links, links_table.as_sql),
        BY_KEYS: by_sql(folder, keys, links_table.as_sql),
    }


def by_datafusion(folder: Path) -> Engine:
    """DataFusion's own package on the Parquet files."""
    context = datafusion.SessionContext()
    context.register_parquet("kb", str(folder))

    def ask(question: Question) -> list[int]:
        batch = next(batch for batch in context.sql(links_table.as_sql(question)).collect() if batch.num_rows)
        return [column[0].as_py() for column in batch.columns]

    return Engine(ask)


def by_duckdb(connection: duckdb.DuckDBPyConnection) -> Engine:
    """DuckDB, in which `kb` is a view or a table."""
    return Engine(lambda question: connection.execute(links_table.as_sql(question)).fetchone())


def duckdb_parquet(folder: Path) -> Peer:
    """DuckDB on the Parquet files."""
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW kb AS SELECT * FROM read_parquet({links_table.files(folder)})")
    return Peer(by_duckdb(connection))


def duckdb_native(folder: Path) -> Peer:
    """DuckDB with a table of its own, which is kept."""
    copy, start = folder.with_name(f"{folder.name}-duckdb"), time.perf_counter()
    path = copy / "kb.duckdb"
    with kept(copy) as is_missing:
        if is_missing:
            with duckdb.connect(str(path)) as connection:
                connection.execute(f"CREATE TABLE kb AS SELECT s, p, o FROM read_parquet({links_table.files(folder)})")
                connection.execute("CHECKPOINT")
    seconds = time.perf_counter() - start if is_missing else None
    return Peer(by_duckdb(duckdb.connect(str(path), read_only=True)), seconds, path.stat().st_size)


def as_text(folder: Path) -> Path:
    """The triples as N-Triples, which are kept."""
    copy = folder.with_name(f"{folder.name}-text")
    with kept(copy) as is_missing, (copy / "kb.nt").open("ab") as text:
        for path in links_table.files(folder) if is_missing else ():
            rows = pq.read_table(path, columns=["s", "p", "o"])
            s, p, o = (pc.cast(rows[column].combine_chunks(), pa.large_string()) for column in "spo")
            parts = (f"<{NAMES}", s, f"> <{NAMES}p", p, f"> <{NAMES}", o, "> .\n")
            own = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
            # The texts of an array follow each other in its last buffer.
            text.write(pc.binary_join_element_wise(*own, pa.scalar("", pa.large_string())).buffers()[2])
    return copy / "kb.nt"


def oxigraph(folder: Path, *, in_memory: bool) -> Peer:
    """Oxigraph with a store of its own on disk, which is kept, or with all triples in memory."""
    import pyoxigraph

    def answer(found: Sequence[Any]) -> list[int]:
        nodes = [int(solution["x"].value.rpartition("/")[2]) for solution in found]
        return [len(nodes), sum(nodes)]

    def engine(store: Any) -> Engine:  # noqa: ANN401 - the package may be missing
        return Engine(lambda question: list(store.query(links_table.as_sparql(question, NAMES))), answer)

    text = as_text(folder)
    start = time.perf_counter()
    if in_memory:
        before, store = measure.process_memory("VmRSS"), pyoxigraph.Store()
        store.bulk_load(path=str(text))
        taken = measure.process_memory("VmRSS") - before
        return Peer(engine(store), time.perf_counter() - start, taken)
    copy = folder.with_name(f"{folder.name}-oxigraph")
    with kept(copy) as is_missing:
        if is_missing:
            store = pyoxigraph.Store(str(copy / "kb"))
            store.bulk_load(path=str(text))
            store.flush()
            store.optimize()
            # The next one cannot open it before.
            del store
    seconds = time.perf_counter() - start if is_missing else None
    return Peer(engine(pyoxigraph.Store.read_only(str(copy / "kb"))), seconds, bytes_of(copy))


def ladybug(folder: Path) -> Peer:
    """Ladybug with a table of its own, which is kept: links of each predicate apart."""
    import ladybug as package

    copy, start = folder.with_name(f"{folder.name}-ladybug"), time.perf_counter()
    with kept(copy) as is_missing:
        connection = package.Connection(package.Database(str(copy / "kb"), buffer_pool_size=LADYBUG_BYTES))
        if is_missing:
            load_ladybug(connection, folder, copy)
    seconds = time.perf_counter() - start if is_missing else None
    connection.execute("CALL var_length_extend_max_depth=255")

    def ask(question: Question) -> list[int]:
        return list(connection.execute(links_table.as_cypher(question)).get_all()[0])  # type: ignore[union-attr]

    return Peer(Engine(ask), seconds, bytes_of(copy))


def load_ladybug(connection: Any, folder: Path, copy: Path) -> None:  # noqa: ANN401 - the package may be missing
    """Copies nodes and links into the tables of Ladybug."""
    rows = pa.concat_tables(pq.read_table(path, columns=["s", "p", "o"]) for path in links_table.files(folder))
    nodes = pc.unique(pa.chunked_array([*rows["s"].chunks, *rows["o"].chunks]))
    pq.write_table(pa.table({"id": nodes}), copy / "nodes.parquet")
    connection.execute("CREATE NODE TABLE N(id INT64, PRIMARY KEY(id))")
    connection.execute(f"COPY N FROM '{copy / 'nodes.parquet'}'")
    for predicate in pc.unique(rows["p"]).to_pylist():
        part, path = rows.filter(pc.equal(rows["p"], predicate)), copy / f"p{predicate}.parquet"
        pq.write_table(part.select(["s", "o"]), path)
        connection.execute(f"CREATE REL TABLE p{predicate}(FROM N TO N)")
        connection.execute(f"COPY p{predicate} FROM '{path}'")
    connection.execute("CHECKPOINT")
    for path in copy.glob("*.parquet"):
        path.unlink()


def bytes_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peers(folder: Path, rows: int, tell: Tell) -> dict[str, Peer]:
    """The engines beside us that are there, open."""
    opens: dict[str, Callable[[], Peer]] = {
        "datafusion": lambda: Peer(by_datafusion(folder)),
        "duckdb parquet": lambda: duckdb_parquet(folder),
        "duckdb native": lambda: duckdb_native(folder),
    }
    stores: dict[str, Callable[[], Peer]] = {
        "oxigraph": lambda: oxigraph(folder, in_memory=False),
        "oxigraph, in memory": lambda: oxigraph(folder, in_memory=True),
        "ladybug": lambda: ladybug(folder),
    }
    missing = [package for package in GRAPH_STORES if importlib.util.find_spec(package) is None]
    for package in missing:
        print(f"{package} is not installed and is left out: pip install --requirement benchmarks/requirements.txt")
    left_out = {GRAPH_STORES[package] for package in missing}
    opens |= {name: opened for name, opened in stores.items() if name.partition(",")[0] not in left_out}
    if rows > MOST_TRIPLES_IN_MEMORY and opens.pop("oxigraph, in memory", None):
        print(f"Oxigraph in memory is left out above {MOST_TRIPLES_IN_MEMORY:,} triples")
    found = {}
    for place, (name, opened) in enumerate(opens.items()):
        tell(place / len(opens))
        found[name] = opened()
    return found


def ask_in_turn(
    engines: Mapping[str, Engine], questions: Sequence[Question], rounds: int, seconds: float, tell: Tell
) -> dict[str, dict[str, Any]]:
    """Asks questions of a shape, in turn; the answers are equal. Returns what an answer cost each engine.

    The first question warms, and does not count. Each engine is asked so many at least, and more as long as it has not
    taken more than so many seconds. So what is compared is compared over the questions that both were asked.
    """
    costs: dict[str, list[measure.Cost]] = {name: [] for name in engines}
    found: list[int] = []
    for turn, question in enumerate(questions):
        tell(turn / len(questions))
        spent = {name: sum(cost.wall_seconds for cost in paid) for name, paid in costs.items()}
        asked = [name for name in engines if turn <= rounds or spent[name] < seconds]
        if not asked:
            break
        answers = {}
        for name in measure.in_turn(asked, turn):
            given, cost = measure.measure(lambda ask=engines[name].ask, question=question: ask(question))
            answers[name] = engines[name].answer(given)
            costs[name].append(cost)
        measure.check_equal(str(question), answers)
        found.append(next(iter(answers.values()))[0])
    nodes = float(np.median(found[1:]))
    return {
        name: {
            **measure.per_lookup(paid[1:]),
            "nodes": nodes,
            "each_ms": [round(cost.wall_seconds * 1e3, 4) for cost in paid[1:]],
        }
        for name, paid in costs.items()
    }


def clients(
    folder: Path, store: Path, questions: Sequence[Question], seconds: float, tell: Tell
) -> dict[str, dict[str, float]]:
    """Clients that ask a mix of the six queries by calls, each waiting for its answer (figures 6.9 and 6.10)."""
    call = by_call(lakemark.Table(folder, store=store).links("s", "p", "o")).ask
    order = np.random.default_rng(5).permutation(len(questions))
    # One client would be the one that reads what all others find in memory.
    for question in questions:
        call(question)
    found = {}
    for place, count in enumerate(CLIENTS):
        tell(place / len(CLIENTS))
        asks = [lambda text: call(questions[int(text)])] * count
        draw = lambda client, turn: str(order[(client * 7919 + turn) % len(order)])  # noqa: E731
        start = measure.process_cpu_seconds()
        done = closed_loop.ask_at_once(asks, draw, 1, seconds).summary()
        found[str(count)] = {**done, "cpu_ms": (measure.process_cpu_seconds() - start) / done["queries"] * 1e3}
    return found


def versions() -> dict[str, str]:
    """The versions of the engines that are there."""
    packages = [package for package in GRAPH_STORES if importlib.util.find_spec(package) is not None]
    own = {"lakemark": lakemark.__version__, "datafusion": datafusion.__version__, "duckdb": duckdb.__version__}
    return {**own, **{GRAPH_STORES[package]: version(package) for package in packages}}

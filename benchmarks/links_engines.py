"""The engines that are asked about links: Lakemark by calls, functions and SQL, tables of others, and graph stores."""

from __future__ import annotations

import gc
import importlib.util
from importlib.metadata import version
from typing import TYPE_CHECKING

import datafusion
import duckdb
import links_table
import measure
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kept import kept

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from links_table import Question

    Ask = Callable[[Question], list[int]]

# Oxigraph keeps triples in memory, and takes minutes to load more than these.
MOST_TRIPLES_OF_OXIGRAPH = 10_000_000
# What peers other than tables are called by their packages, and by us.
GRAPH_STORES = {"pyoxigraph": "oxigraph", "ladybug": "ladybug"}


def summed(nodes: pa.Array | pa.ChunkedArray) -> list[int]:
    """How many there are, and their sum."""
    return [len(nodes), pc.sum(nodes).as_py() or 0]


def by_call(links: lakemark.Links) -> Ask:
    """The calls of Python."""

    def ask(question: Question) -> list[int]:
        via, is_out, is_far, fact = question.shape
        if is_far:
            found = links.reach(question.start, via=via, direction="out" if is_out else "in")
        else:
            found = (links.out if is_out else links.into)(question.start, via=via)
        nodes = found.to_arrow()["node"]
        if fact is None or not len(nodes):
            return summed(nodes)
        facts = links.out(nodes.combine_chunks(), via=fact).to_arrow()
        return summed(facts.filter(pc.equal(facts["node"], question.object))["from"])

    return ask


def by_lakemark(folder: Path, store: Path) -> dict[str, Ask]:
    """The calls, the table functions, and unchanged SQL."""
    session = lakemark.connect()
    session.table(folder, name="kb", store=store)

    def row(sql: str) -> list[int]:
        return [column[0].as_py() or 0 for column in session.sql(sql).to_arrow().columns]

    return {
        "lakemark call": by_call(lakemark.Table(folder, store=store).links("s", "p", "o")),
        "lakemark functions": lambda question: row(links_table.as_functions(question)),
        "lakemark SQL": lambda question: row(links_table.as_sql(question)),
    }


def by_datafusion(folder: Path) -> Ask:
    """DataFusion's own package on the Parquet files."""
    context = datafusion.SessionContext()
    context.register_parquet("kb", str(folder))

    def ask(question: Question) -> list[int]:
        batch = next(batch for batch in context.sql(links_table.as_sql(question)).collect() if batch.num_rows)
        return [column[0].as_py() or 0 for column in batch.columns]

    return ask


def by_duckdb(connection: duckdb.DuckDBPyConnection) -> Ask:
    """DuckDB, in which `kb` is a view or a table."""

    def ask(question: Question) -> list[int]:
        row = connection.execute(links_table.as_sql(question)).fetchone()
        return [int(value or 0) for value in row or ()]

    return ask


def duckdb_parquet(folder: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB on the Parquet files."""
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW kb AS SELECT * FROM read_parquet({links_table.files(folder)})")
    return connection


def duckdb_native(folder: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with a table of its own, which is kept."""
    copy = folder.with_name(f"{folder.name}-duckdb")
    with kept(copy) as is_missing:
        connection = duckdb.connect(str(copy / "kb.duckdb"))
        if is_missing:
            connection.execute(f"CREATE TABLE kb AS SELECT s, p, o FROM read_parquet({links_table.files(folder)})")
            connection.execute("CHECKPOINT")
    return connection


def by_oxigraph(folder: Path) -> tuple[Ask, int]:
    """Oxigraph with all triples in memory, and the bytes that they take there."""
    import pyoxigraph

    copy, of = folder.with_name(f"{folder.name}-text"), "http://e/"
    with kept(copy) as is_missing:
        if is_missing:
            with (copy / "kb.nt").open("w", encoding="ascii") as text:
                for path in links_table.files(folder):
                    rows = pq.read_table(path, columns=["s", "p", "o"])
                    each = zip(*(rows[column].to_pylist() for column in "spo"), strict=True)
                    text.writelines(f"<{of}{s}> <{of}p{p}> <{of}{o}> .\n" for s, p, o in each)
    gc.collect()
    before = measure.process_memory("VmRSS")
    store = pyoxigraph.Store()
    store.bulk_load(path=str(copy / "kb.nt"))

    def ask(question: Question) -> list[int]:
        found = store.query(links_table.as_sparql(question, of))
        nodes = [int(solution["x"].value.rpartition("/")[2]) for solution in found]  # type: ignore[index, union-attr]
        return [len(nodes), sum(nodes)]

    return ask, measure.process_memory("VmRSS") - before


def by_ladybug(folder: Path) -> tuple[Ask, int]:
    """Ladybug with a table of its own, which is kept: links of each predicate apart; and its bytes."""
    import ladybug

    copy = folder.with_name(f"{folder.name}-ladybug")
    with kept(copy) as is_missing:
        database = ladybug.Database(str(copy / "kb"))
        connection = ladybug.Connection(database)
        if is_missing:
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
    connection.execute("CALL var_length_extend_max_depth=255")

    def ask(question: Question) -> list[int]:
        row = connection.execute(links_table.as_cypher(question)).get_all()[0]  # type: ignore[union-attr]
        return [int(value or 0) for value in row]

    return ask, (copy / "kb").stat().st_size


def engines(folder: Path, store: Path, rows: int) -> tuple[dict[str, Ask], dict[str, int]]:
    """Each engine's answers, and the bytes that links take in graph stores."""
    asks = {
        **by_lakemark(folder, store),
        "datafusion": by_datafusion(folder),
        "duckdb parquet": by_duckdb(duckdb_parquet(folder)),
        "duckdb native": by_duckdb(duckdb_native(folder)),
    }
    sizes = {}
    for package, name in GRAPH_STORES.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed and is left out: pip install --requirement benchmarks/requirements.txt")
        elif name == "oxigraph" and rows > MOST_TRIPLES_OF_OXIGRAPH:
            print(f"Oxigraph is left out above {MOST_TRIPLES_OF_OXIGRAPH:,} triples")
        else:
            asks[name], sizes[name] = (by_oxigraph if name == "oxigraph" else by_ladybug)(folder)
    return asks, sizes


def versions() -> dict[str, str]:
    """The versions of the engines that are there."""
    packages = [package for package in GRAPH_STORES if importlib.util.find_spec(package) is not None]
    own = {"lakemark": lakemark.__version__, "datafusion": datafusion.__version__, "duckdb": duckdb.__version__}
    return {**own, **{GRAPH_STORES[package]: version(package) for package in packages}}

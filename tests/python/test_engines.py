"""Polars, DuckDB, datasets of pyarrow and other versions of the `datafusion` package read tables by their indexes."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import re
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark import _packages
from mapped_delta import commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Judged

    Find = Callable[[lakemark.Table, str, bool], list[int]]

ROOT = Path(__file__).parents[2]
FILES, ROWS = 4, 20_000
LAST = FILES * ROWS - 1
V = pl.col("v")


def token(n: int) -> str:
    return hashlib.blake2b(str(n).encode(), digest_size=16).hexdigest()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with a token each, in no order, so that no bounds of pages tell where one is."""
    folder = tmp_path_factory.mktemp("engines") / "tokens"
    folder.mkdir()
    for part in range(FILES):
        ids = range(part * ROWS, (part + 1) * ROWS)
        rows = pa.table({"n": pa.array(ids, pa.int64()), "token": [token(n) for n in ids], "text": ["x" * 50] * ROWS})
        path = folder / f"part-{part}.parquet"
        pq.write_table(
            rows, path, row_group_size=5000, data_page_size=4096, compression="none", use_dictionary=False,
            write_batch_size=64, write_page_index=True,
        )  # fmt: skip
    lakemark.Table(folder).create_index("token", using="key", progress=False)
    return folder


def by_polars(table: lakemark.Table, value: str, use_index: bool) -> list[int]:
    frame = lakemark.scan_polars(table, use_index=use_index)
    return frame.filter(pl.col("token") == value).select("n").collect()["n"].to_list()


def by_duckdb(table: lakemark.Table, value: str, use_index: bool) -> list[int]:
    with duckdb.connect() as connection:
        relation = lakemark.scan_duckdb(table, connection, use_index=use_index)
        return [row[0] for row in relation.filter(f"token = '{value}'").select("n").fetchall()]


def by_dataset(table: lakemark.Table, value: str, use_index: bool) -> list[int]:
    dataset = table.to_pyarrow_dataset(use_index=use_index)
    return dataset.to_table(columns=["n"], filter=pc.field("token") == value)["n"].to_pylist()


def by_view(table: lakemark.Table, value: str, use_index: bool) -> list[int]:
    with duckdb.connect() as connection:
        dataset = table.to_pyarrow_dataset(use_index=use_index)
        connection.register("tokens", dataset)
        return [row[0] for row in connection.execute("SELECT n FROM tokens WHERE token = $1", [value]).fetchall()]


def bytes_read(table: lakemark.Table, work: Callable[[], object]) -> float:
    def read() -> float:
        found = table.stats()["lakemark_request_bytes_total"]
        assert isinstance(found, dict)
        return found["get"]

    before = read()
    work()
    return read() - before


@pytest.mark.parametrize("find", [by_polars, by_duckdb, by_dataset, by_view])
def test_a_condition_of_an_engine_reads_the_pages_that_the_index_names(tokens: Path, find: Find) -> None:
    table = lakemark.Table(tokens)
    # Footers and directories are read once.
    for use_index in (True, False):
        assert find(table, token(1), use_index) == [1]
    indexed = bytes_read(table, lambda: find(table, token(17_000), True))
    scanned = bytes_read(table, lambda: find(table, token(17_000), False))
    assert scanned * 2 > FILES * ROWS * len(token(0))
    assert indexed * 4 < scanned


def test_columns_that_an_engine_does_not_ask_for_are_not_read(tokens: Path) -> None:
    table = lakemark.Table(tokens)
    frame, dataset = lakemark.scan_polars(table), table.to_pyarrow_dataset()
    asks: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (lambda: frame.select("n").collect(), frame.collect),
        (lambda: dataset.to_table(columns=["n"]), dataset.to_table),
        (lambda: dataset.to_table(columns={"m": pc.field("n") + 1}), dataset.to_table),
    ]
    for few, all_columns in asks:
        all_columns()
        assert bytes_read(table, few) * 4 < bytes_read(table, all_columns)


def test_a_dataset_counts_from_the_index_alone(tokens: Path) -> None:
    table = lakemark.Table(tokens)
    dataset = table.to_pyarrow_dataset()
    wanted = pc.field("token").isin([token(5), token(17_000), "none"])
    assert dataset.count_rows(filter=wanted) == 2
    counted = bytes_read(table, lambda: dataset.count_rows(filter=pc.field("token") == token(9)))
    assert counted * 4 < FILES * ROWS * len(token(0))
    assert dataset.count_rows() == FILES * ROWS
    # What the indexes do not know is read.
    assert dataset.count_rows(filter=pc.utf8_length(pc.field("token")) == 32) == FILES * ROWS


class Watched(lakemark.Table):
    """A table that remembers how it was scanned."""

    def scan(self, *given: Any, **named: Any) -> lakemark.Rows:
        self.__dict__.setdefault("scans", []).append((*given, named.get("columns"), named.get("limit")))
        return super().scan(*given, **named)

    def last_scan(self) -> tuple[object, ...]:
        return tuple(self.__dict__["scans"][-1])


def test_the_first_rows_are_taken_before_a_condition_and_never_instead_of_it(tokens: Path) -> None:
    table = Watched(tokens)
    frame = lakemark.scan_polars(table)
    assert frame.head(3).collect().height == 3
    assert table.last_scan()[-1] == 3
    for engine in ("in-memory", "streaming"):
        assert frame.head(3).filter(pl.col("n") < 0).collect(engine=engine).height == 0
        assert frame.filter(pl.col("n") >= LAST).head(3).collect(engine=engine)["n"].to_list() == [LAST]
        assert table.last_scan() == (f'"n" >= {LAST}', ["n", "token", "text"], None)
    dataset = table.to_pyarrow_dataset()
    assert dataset.head(3, filter=pc.field("n") >= LAST - 1).num_rows == 2
    assert table.last_scan() == (f'"n" >= {LAST - 1}', ["n", "token", "text"], 3)
    # A sum is not looked into: rows that pass it may be the last ones.
    assert dataset.head(3, filter=pc.field("n") + 1 > LAST).num_rows == 1
    assert table.last_scan() == (None, ["n", "token", "text"], None)


def test_batches_of_polars_are_about_as_large_as_it_asks_for(tokens: Path) -> None:
    frames = list(lakemark.scan_polars(tokens).collect_batches(chunk_size=1000, maintain_order=False))
    assert len(frames) > 1
    assert sum(frame.height for frame in frames) == FILES * ROWS
    sizes = [batch.num_rows for batch in lakemark.Table(tokens).to_pyarrow_dataset().to_batches(batch_size=1000)]
    assert (max(sizes) <= 1000, sum(sizes)) == (True, FILES * ROWS)


def test_chains_and_lists_of_thousands_are_taken_or_left_and_right_always(tokens: Path) -> None:
    table = Watched(tokens)
    numbers = list(range(0, 6000, 2))
    either = pl.col("n") == numbers[0]
    for number in numbers[1:300]:
        either = either | (pl.col("n") == number)
    assert lakemark.scan_polars(table).filter(either).collect().height == 300
    assert str(table.last_scan()[0]).count(" OR ") == 299
    assert lakemark.scan_polars(table).filter(pl.col("n").is_in(numbers)).collect().height == 3000
    assert str(table.last_scan()[0]).startswith('"n" IN (')
    many = list(range(10_000))
    assert lakemark.scan_polars(table).filter(pl.col("n").is_in(many)).collect().height == 10_000
    # Deeper than parsers of SQL go.
    deep = pc.field("n") >= 0
    for number in range(200):
        deep = (deep & (pc.field("n") != number)) | (pc.field("n") == -number - 1)
    assert table.to_pyarrow_dataset().count_rows(filter=deep) == FILES * ROWS - 200


def answers(table: lakemark.Table, first: int) -> list[list[int]]:
    """The ids of the rows of one kind, as our own scan has them and as every engine does."""
    ours = table.scan(f"v = {first}", columns=["id"]).to_arrow()["id"].to_pylist()
    with duckdb.connect() as connection:
        by_sql = lakemark.scan_duckdb(table, connection).filter(f"v = {first}").select("id").fetchall()
    of_polars = lakemark.scan_polars(table).filter(first == V).select("id").collect()["id"].to_list()
    of_arrow = table.to_pyarrow_dataset().to_table(columns=["id"], filter=pc.field("v") == first)["id"].to_pylist()
    return [sorted(found) for found in (ours, of_polars, [row[0] for row in by_sql], of_arrow)]


def test_buffered_changes_and_older_versions_are_seen_by_every_engine(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(500), pa.int64()), "v": pa.array([n % 7 for n in range(500)], pa.int64())})
    pq.write_table(rows, tmp_path / "p.parquet", row_group_size=100, write_page_index=True)
    table = lakemark.Table(tmp_path, key="id")
    table.create_index("v", using="bitmap", progress=False)
    frame, dataset = lakemark.scan_polars(table), table.to_pyarrow_dataset()
    table.upsert({"id": [3, 1000], "v": [4, 3]})
    table.delete([10])
    table.flush()
    table.update([{"id": 17, "v": 5}])
    expected = sorted([n for n in range(500) if n % 7 == 3 and n not in (3, 10, 17)] + [1000])
    assert answers(table, 3) == [expected] * 4
    # What was made before sees the rows of now.
    assert set(frame.filter(V == 3).collect()["id"]) == set(expected)
    assert dataset.count_rows(filter=pc.field("v") == 3) == len(expected)
    newest = table.history(1)[0].version
    old = lakemark.Table(tmp_path, version=newest - 1)
    assert answers(old, 3) == [[n for n in range(500) if n % 7 == 3]] * 4


def inline_vector(rows: list[int]) -> dict[str, Any]:
    """A deletion vector that stands in the log, of rows below 65,536: one container of a Roaring bitmap."""
    held = struct.pack("<IQI", 1_681_511_377, 1, 0)
    held += struct.pack("<IIHHI", 12_346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *sorted(rows))
    size = len(held)
    held += bytes(-size % 4)
    letters = "0123456789" + "".join(map(chr, range(97, 123))) + "".join(map(chr, range(65, 91)))
    z85 = letters + ".-:+=^!/*?&<>()[]{}@%$#"
    b85 = (
        "0123456789" + "".join(map(chr, range(65, 91))) + "".join(map(chr, range(97, 123))) + "!#$%&()*+-;<=>?@^_`{|}~"
    )
    text = base64.b85encode(held).decode().translate(str.maketrans(b85, z85))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": len(rows)}


def test_rows_of_a_deletion_vector_are_in_no_engine(tmp_path: Path) -> None:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "v")]
    table_schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    rows = pa.table({"id": range(300), "v": [n % 7 for n in range(300)]}, schema=table_schema)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=100, write_page_index=True)
    add = {
        "path": "a.parquet",
        "partitionValues": {},
        "size": (tmp_path / "a.parquet").stat().st_size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
    }
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    metadata = {
        "id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b13",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true"},
        "createdTime": 0,
    }
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    commit(tmp_path, 0, protocol, {"metaData": metadata}, {"add": add})
    table = lakemark.Table(tmp_path)
    table.create_index("v", using="bitmap", progress=False)
    deleted = [3, 10, 299]
    remove = {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": True}
    commit(tmp_path, 1, {"remove": remove}, {"add": {**add, "deletionVector": inline_vector(deleted)}})
    assert answers(table, 3) == [[n for n in range(300) if n % 7 == 3 and n not in deleted]] * 4
    assert answers(lakemark.Table(tmp_path, version=0), 3) == [[n for n in range(300) if n % 7 == 3]] * 4


def test_duckdb_joins_and_sorts_what_it_reads_and_takes_its_own_connection(indexed: Judged) -> None:
    relation = lakemark.scan_duckdb(indexed.folder)
    assert relation.filter("city = 'Oslo'").aggregate("count(*)").fetchall() == [(indexed.count("city = 'Oslo'"),)]
    with duckdb.connect() as connection:
        lakemark.scan_duckdb(indexed.table, connection).create_view("orders")
        query = "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id + 1 WHERE a.city = 'Rom' ORDER BY a.id LIMIT 5"
        assert connection.execute(query).fetchall() == indexed.judge.execute(query.replace("orders", "t")).fetchall()


def test_datasets_refuse_by_name_what_would_go_past_the_indexes(indexed: Judged) -> None:
    dataset = indexed.table.to_pyarrow_dataset()
    assert isinstance(dataset, ds.Dataset)
    refused: list[Callable[[], object]] = [
        lambda: dataset.take([1]),
        dataset.get_fragments,
        lambda: dataset.replace_schema(dataset.schema),
        lambda: dataset.join(dataset, "id"),
        lambda: dataset.join_asof(dataset, on="id", by="city", tolerance=1),
        lambda: dataset.sort_by("id"),
        lambda: pickle.dumps(dataset),
    ]
    for ask in refused:
        with pytest.raises(lakemark.UnsupportedError):
            ask()
    # pyarrow itself finds neither rows nor a crash.
    source = pyarrow.acero.Declaration("scan", pyarrow.acero.ScanNodeOptions(dataset))
    with pytest.raises(FileNotFoundError, match="a table of Lakemark"):
        source.to_table()
    with pytest.raises(lakemark.UnsupportedError):
        ds.dataset([dataset])
    # Every method and property of a dataset is one of ours.
    own = vars(type(dataset))
    public = {name for name in dir(ds.Dataset) if not name.startswith("_")}
    assert len(public) > 10
    assert public <= set(own)


def test_a_dataset_says_that_the_columns_have_changed(plain: Judged) -> None:
    dataset = plain.table.to_pyarrow_dataset()
    for part in plain.folder.glob("*.parquet"):
        rows = pq.read_table(part)
        pq.write_table(rows.set_column(0, "id", rows["id"].cast(pa.int32())), part)
    with pytest.raises(lakemark.SchemaMismatchError, match="to_pyarrow_dataset"):
        dataset.to_table()
    assert plain.table.to_pyarrow_dataset().count_rows() == 4000


def test_bad_input_says_what_to_give(indexed: Judged, tmp_path: Path) -> None:
    dataset, scans = indexed.table.to_pyarrow_dataset(), (lakemark.scan_polars, lakemark.scan_duckdb)
    for scan in scans:
        with pytest.raises(lakemark.InvalidInputError, match=r"lakemark\.Table"):
            scan(7)  # type: ignore[arg-type]
        with pytest.raises(lakemark.NotFoundError, match="nowhere"):
            scan(tmp_path / "nowhere")
    with pytest.raises(lakemark.InvalidInputError, match="connect"):
        lakemark.scan_duckdb(indexed.table, "memory")  # type: ignore[arg-type]
    with pytest.raises(lakemark.InvalidInputError, match="expression"):
        dataset.to_table(filter="city = 'Oslo'")
    with pytest.raises(lakemark.InvalidInputError, match="list of names"):
        dataset.to_table(columns="city")
    with pytest.raises(lakemark.InvalidInputError, match="num_rows"):
        dataset.head(-1)
    with pytest.raises(pa.ArrowInvalid, match="town"):
        dataset.to_table(columns=["town"])
    with pytest.raises(pa.ArrowInvalid, match="town"):
        dataset.to_table(filter=pc.field("town") == 1)
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        lakemark.scan_polars(indexed.table).filter(pl.col("town") == 1).collect()


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("polars", lakemark.scan_polars),
        ("pyarrow", lakemark.scan_polars),
        ("duckdb", lakemark.scan_duckdb),
        ("pyarrow", lakemark.scan_duckdb),
        ("pyarrow", lambda table: table.to_pyarrow_dataset()),
        ("datafusion", lambda table: table.__datafusion_table_provider__()),
    ],
)
def test_what_to_install_is_said_of_a_package_that_is_missing(
    indexed: Judged, monkeypatch: pytest.MonkeyPatch, package: str, use: Callable[[lakemark.Table], object]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(lakemark.MissingPackageError, match=f"pip install '{package}"):
        use(indexed.table)
    with pytest.raises(ImportError):
        use(indexed.table)


def test_a_polars_that_is_too_old_is_named(indexed: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "__version__", "1.9.3")
    with pytest.raises(lakemark.UnsupportedError, match=r"1\.9\.3.*polars>=1\.33"):
        lakemark.scan_polars(indexed.table)


@pytest.mark.parametrize("version", ["43.1.0", "54.0.1", "56.0.0", "100.0", "dev"])
def test_other_versions_of_datafusion_are_refused_by_name(
    indexed: Judged, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(datafusion, "__version__", version)
    # Old ones hand no session over.
    with pytest.raises(
        lakemark.UnsupportedError, match=rf"{re.escape(version)}.*datafusion=={_packages.DATAFUSION_MAJOR}"
    ):
        indexed.table.__datafusion_table_provider__()
    context = datafusion.SessionContext()
    with pytest.raises(Exception, match=re.escape(version)):
        context.register_table("t", indexed.table)


def test_the_datafusion_that_works_is_the_one_that_is_built_in(indexed: Judged) -> None:
    manifest = (ROOT / "rust" / "Cargo.toml").read_text("utf-8")
    (major,) = re.findall(r'^datafusion-ffi = "(\d+)\.', manifest, re.MULTILINE)
    assert int(major) == _packages.DATAFUSION_MAJOR
    with pytest.raises(lakemark.InvalidInputError, match="register_table"):
        indexed.table.__datafusion_table_provider__()


def test_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "flights"
    folder.mkdir()
    rows = {
        "flight": range(1000),
        "carrier": ["UA", "AA"] * 500,
        "dest": [("HNL", "SFO", "LAX")[n % 3] for n in range(1000)],
    }
    pq.write_table(pa.table({**rows, "distance": range(1000)}), folder / "part-0.parquet")
    lakemark.Table(folder).create_index("dest", progress=False)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "engines.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/engines.md", "exec"), names)  # noqa: S102 - our own page

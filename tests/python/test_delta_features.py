"""Features of Delta tables that ask more of a writer: delta-rs makes the tables, and reads what Lakemark commits."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from mapped_delta import commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 1000


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": list(ids), "v": [n % 17 + 1 for n in ids], "part": [f"p{n % 3}" for n in ids]})


def by_id(table: pa.Table) -> dict[int, dict[str, Any]]:
    found = {row["id"]: row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def committed(folder: Path, version: int) -> list[dict[str, Any]]:
    """The actions of a version."""
    text = (folder / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def begin(folder: Path, features: list[str], configuration: dict[str, str], *actions: dict[str, Any]) -> None:
    """A table of one file, whose log is written by hand: delta-rs makes none with these features."""
    columns = [("id", "long"), ("v", "long"), ("part", "string")]
    schema = {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns],
    }
    folder.mkdir(exist_ok=True)
    pq.write_table(rows(), folder / "a.parquet", row_group_size=100)
    metadata = {
        "id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b13",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": 0,
    }
    file = {
        "path": "a.parquet",
        "partitionValues": {},
        "size": (folder / "a.parquet").stat().st_size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "baseRowId": 0,
        "defaultRowCommitVersion": 0,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    info = {"commitInfo": {"operation": "CREATE TABLE", "inCommitTimestamp": 1_700_000_000_000}}
    commit(folder, 0, info, {"protocol": protocol}, {"metaData": metadata}, *actions, {"add": file})


def test_a_row_that_breaks_a_check_constraint_stays_buffered_until_it_fits(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows())
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"positive": "v > 0"})
    table = lakemark.Table(tmp_path, key="id")
    changed = pa.table({"id": [1, 5000, 5001], "v": [50, 51, -1], "part": ["p0"] * 3})
    table.upsert(changed)
    expected = by_id(rows()) | by_id(changed)
    with pytest.raises(lakemark.ConstraintViolationError, match=r"row id = 5001 .*CHECK constraint positive"):
        table.migrate()
    # Nothing is lost, and nothing was committed.
    assert by_id(table.scan().to_arrow()) == expected
    assert deltalake.DeltaTable(tmp_path).version() == 1
    table.update({"id": [5001], "v": [52]})
    expected[5001]["v"] = 52
    assert table.migrate().delta_version == 2
    lake = deltalake.DeltaTable(tmp_path)
    assert by_id(lake.to_pyarrow_table()) == expected
    assert lake.metadata().configuration["delta.constraints.positive"] == "v > 0"


def test_a_constraint_that_engines_read_in_their_own_ways_is_refused_by_name(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows())
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"half": "v / 2 < 100"})
    with pytest.raises(lakemark.UnsupportedError, match=r"CHECK constraint half .*`/`.*drop it, or"):
        lakemark.Table(tmp_path, key="id")
    # Indexes and queries work.
    table = lakemark.Table(tmp_path)
    table.create_index("v", progress=False)
    assert table.count("v = 1") == sum(n % 17 == 0 for n in range(ROWS))


def test_rows_of_a_table_that_tracks_them_keep_their_ids(tmp_path: Path) -> None:
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":999}', "removed": False}
    configuration = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row-id",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
        "delta.enableInCommitTimestamps": "true",
    }
    features = ["rowTracking", "domainMetadata", "inCommitTimestamp"]
    begin(tmp_path, features, configuration, {"domainMetadata": mark})
    table = lakemark.Table(tmp_path, key="id")
    expected = by_id(rows())
    for version in (1, 2):
        table.update({"id": [1, 2], "v": [100 + version] * 2})
        table.insert(rows(1000 * version, 10))
        table.delete([3 + version])
        assert table.migrate().delta_version == version
        expected |= by_id(rows(1000 * version, 10))
        expected[1]["v"] = expected[2]["v"] = 100 + version
        del expected[3 + version]
        assert by_id(deltalake.DeltaTable(tmp_path).to_pyarrow_table()) == by_id(table.scan().to_arrow()) == expected
        info = committed(tmp_path, version)[0]["commitInfo"]
        assert info["tags"] == {"delta.rowTracking.preserved": "true"}
        assert info["inCommitTimestamp"] > 1_700_000_000_000
    lake = deltalake.DeltaTable(tmp_path)
    found: dict[int, tuple[int | None, int | None]] = {}
    for uri in lake.file_uris():
        for row in pq.read_table(uri).to_pylist():
            found[row["id"]] = (row["_row-id"], row["_row-version"])
    assert len(found) == len(expected)
    # Rows of the first file have the ids and versions that they had, but for the version of those that changed.
    old = {key: row for key, row in found.items() if key < ROWS}
    assert old == {key: (key, None if key in (1, 2) else 0) for key in old}
    added = [action["add"] for version in (1, 2) for action in committed(tmp_path, version) if "add" in action]
    firsts = sorted((add["baseRowId"], json.loads(add["stats"])["numRecords"]) for add in added)
    assert firsts[0][0] == 1000
    assert all(first + count <= after for (first, count), (after, _) in itertools.pairwise(firsts))


@pytest.mark.parametrize("partitioned", [False, True])
def test_delta_rs_reads_the_changes_of_a_migration_from_the_feed(tmp_path: Path, partitioned: bool) -> None:
    deltalake.write_deltalake(
        tmp_path,
        rows(),
        partition_by=["part"] if partitioned else None,
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    table = lakemark.Table(tmp_path, key="id")
    # A row that changes, one that moves to another partition, one that is new, and one that goes.
    table.upsert({"id": [1, 2, 5000], "v": [50, 51, 52], "part": ["p1", "p9", "p0"]})
    table.delete([7])
    assert table.migrate().delta_version == 1
    feed = deltalake.DeltaTable(tmp_path).load_cdf(starting_version=1, ending_version=1)
    found = pa.table(feed.read_all()).select(["id", "v", "part", "_change_type"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        (1, 2, "p1", "update_preimage"),
        (1, 50, "p1", "update_postimage"),
        (2, 3, "p2", "update_preimage"),
        (2, 51, "p9", "update_postimage"),
        (7, 8, "p1", "delete"),
        (5000, 52, "p0", "insert"),
    ]
    assert by_id(deltalake.DeltaTable(tmp_path).to_pyarrow_table()) == by_id(table.scan().to_arrow())


def test_the_log_gets_statistics_of_fields_of_structs(tmp_path: Path) -> None:
    places = [{"city": ("Oslo", "Rom")[n % 2], "at": {"x": float(n)}} for n in range(100)]
    deltalake.write_deltalake(tmp_path, pa.table({"id": list(range(100)), "place": places}))
    table = lakemark.Table(tmp_path, key="id")
    table.upsert(
        pa.table({"id": [1, 500], "place": [{"city": "Wien", "at": {"x": -1.0}}, {"city": None, "at": {"x": 7.5}}]})
    )
    assert table.migrate().delta_version == 1
    stats = [json.loads(action["add"]["stats"]) for action in committed(tmp_path, 1) if "add" in action]
    assert [of_file["minValues"] for of_file in stats] == [
        {"id": 0, "place": {"city": "Oslo", "at": {"x": -1.0}}},
        {"id": 500, "place": {"at": {"x": 7.5}}},
    ]
    assert [of_file["nullCount"] for of_file in stats] == [
        {"id": 0, "place": {"city": 0, "at": {"x": 0}}},
        {"id": 0, "place": {"city": 1, "at": {"x": 0}}},
    ]
    # Whoever reads by statistics finds the rows.
    lake = deltalake.DeltaTable(tmp_path)
    assert lake.to_pyarrow_table().num_rows == 101
    below = deltalake.QueryBuilder().register("t", lake).execute("SELECT id FROM t WHERE place['at']['x'] < 0")
    assert pa.table(below.read_all()).to_pydict() == {"id": [1]}


def test_checkpoints_of_migrations_are_all_that_other_readers_need(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows(), configuration={"delta.checkpointInterval": "3"})
    table = lakemark.Table(tmp_path, key="id")
    expected = by_id(rows())
    for version in range(1, 8):
        table.upsert(rows(1000 + version, 1))
        table.delete([version])
        assert table.migrate().delta_version == version
        expected |= by_id(rows(1000 + version, 1))
        del expected[version]
    log = tmp_path / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 6
    assert sorted(path.name for path in log.glob("*.parquet")) == [f"{n:020}.checkpoint.parquet" for n in (3, 6)]
    for version in range(6):
        (log / f"{version:020}.json").unlink()
    lake = deltalake.DeltaTable(tmp_path)
    assert lake.version() == 7
    assert by_id(lake.to_pyarrow_table()) == by_id(lakemark.Table(tmp_path).scan().to_arrow()) == expected
    # Others go on from the checkpoint.
    deltalake.write_deltalake(tmp_path, rows(9000, 5), mode="append")
    assert table.count() == len(expected) + 5


def digits(of: int) -> Decimal:
    return Decimal(of) / 4


def moment(of: int) -> dt.datetime:
    return dt.datetime.fromisoformat("2024-01-01") + dt.timedelta(days=of)


# A column, its type before and now, in the log and in Arrow, and its values.
WIDENED: list[tuple[str, str, str, pa.DataType, pa.DataType, Callable[[int], Any]]] = [
    ("whole", "byte", "long", pa.int8(), pa.int64(), int),
    ("count", "integer", "double", pa.int32(), pa.float64(), int),
    ("ratio", "float", "double", pa.float32(), pa.float64(), lambda of: of + 0.1),
    ("day", "date", "timestamp_ntz", pa.date32(), pa.timestamp("us"), moment),
    ("price", "decimal(5,2)", "decimal(10,4)", pa.decimal128(5, 2), pa.decimal128(10, 4), digits),
    ("amount", "integer", "decimal(12,1)", pa.int32(), pa.decimal128(12, 1), int),
]
# What the narrower types do not have.
NOON = dt.datetime.fromisoformat("2030-01-01 12:00:00")
WIDE: list[Any] = [10**12, 0.5, 0.1, NOON, Decimal("123456.7891"), Decimal("0.5")]


def widened(folder: Path) -> pa.Table:
    """A table with a file from before its columns were widened, and one from after that."""
    names = [name for name, *_ in WIDENED]
    before = pa.table(
        {
            "id": list(range(ROWS)),
            **{name: pa.array([of(n % 100) for n in range(ROWS)], kind) for name, _, _, kind, _, of in WIDENED},
            "s": pa.array([{"x": n % 7} for n in range(ROWS)], pa.struct({"x": pa.int32()})),
        }
    )
    wide = [(name, kind) for name, _, _, _, kind, _ in WIDENED]
    schema = pa.schema([("id", pa.int64()), *wide, ("s", pa.struct({"x": pa.int64()}))])
    rows_after = [{"id": ROWS, **dict(zip(names, WIDE, strict=True)), "s": {"x": 10**12}}]
    after = pa.Table.from_pylist(rows_after, schema)
    folder.mkdir(exist_ok=True)

    def field(name: str, kind: Any, *change: str) -> dict[str, Any]:
        said = {"delta.typeChanges": [dict(zip(("fromType", "toType"), change, strict=True))]} if change else {}
        return {"name": name, "type": kind, "nullable": True, "metadata": said}

    def metadata(*columns: dict[str, Any]) -> dict[str, Any]:
        return {
            "metaData": {
                "id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b14",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": columns}),
                "partitionColumns": [],
                "configuration": {"delta.enableTypeWidening": "true"},
                "createdTime": 0,
            }
        }

    def add(name: str, data: pa.Table) -> dict[str, Any]:
        pq.write_table(data, folder / name, row_group_size=100)
        size = (folder / name).stat().st_size
        said = {"size": size, "modificationTime": 1_700_000_000_000, "dataChange": True}
        return {"add": {"path": name, "partitionValues": {}, **said}}

    def inside(*field_of_struct: dict[str, Any]) -> dict[str, Any]:
        return {"type": "struct", "fields": field_of_struct}

    features = ["typeWidening", "timestampNtz"]
    reader = {"minReaderVersion": 3, "readerFeatures": features}
    protocol = {"protocol": {**reader, "minWriterVersion": 7, "writerFeatures": features}}
    old = [field(name, kind) for name, kind, *_ in WIDENED]
    old_s = field("s", inside(field("x", "integer")))
    commit(folder, 0, protocol, metadata(field("id", "long"), *old, old_s), add("a.parquet", before))
    new = [field(name, now, was, now) for name, was, now, *_ in WIDENED]
    new_s = field("s", inside(field("x", "long", "integer", "long")))
    commit(folder, 1, metadata(field("id", "long"), *new, new_s))
    commit(folder, 2, add("b.parquet", after))
    kept = [before.column(name).cast(kind) for name, kind in wide]
    s = pa.array([{"x": n % 7} for n in range(ROWS)], schema.field("s").type)
    return pa.concat_tables([pa.table([before.column("id"), *kept, s], schema=schema), after])


def literal(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, Decimal):
        return f"CAST('{value}' AS DECIMAL(12,4))"
    return repr(value)


def test_values_from_before_a_type_was_widened_are_found_as_those_from_after_it(tmp_path: Path) -> None:
    expected = widened(tmp_path)
    names = [name for name, *_ in WIDENED]
    table = lakemark.Table(tmp_path)
    assert by_id(table.scan().to_arrow()) == by_id(expected)
    for column in (*names, "s.x"):
        assert table.create_index(column, progress=False).coverage == 1.0
    found = by_id(expected)
    for name in names:
        for row in (0, 57, ROWS):
            value = found[row][name]
            for operator, holds in (("=", lambda of, value: of == value), (">", lambda of, value: of > value)):
                want = sorted(n for n, of in found.items() if holds(of[name], value))
                condition = f"{name} {operator} {literal(value)}"
                for use_index in (True, False):
                    have = table.scan(condition, columns=["id"], use_index=use_index).to_arrow()
                    assert sorted(have["id"].to_pylist()) == want, (condition, use_index)
    for use_index in (True, False):
        assert table.count("s['x'] = 3", use_index=use_index) == sum(row["s"]["x"] == 3 for row in found.values())
        assert table.count(f"s['x'] = {10**12}", use_index=use_index) == 1
    assert table.verify().ok


def test_a_migration_writes_the_types_that_columns_have_now(tmp_path: Path) -> None:
    expected = widened(tmp_path)
    table = lakemark.Table(tmp_path, key="id")
    changed = expected.slice(ROWS).set_column(0, "id", pa.array([7], pa.int64()))
    table.upsert(changed)
    table.migrate()
    now = by_id(expected) | by_id(changed)
    assert by_id(lakemark.Table(tmp_path).scan().to_arrow()) == now
    added = [line["add"]["path"] for line in committed(tmp_path, 3) if "add" in line]
    for path in added:
        assert pq.read_schema(tmp_path / path).types == expected.schema.types
    assert added


def test_a_change_of_a_type_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    widened(tmp_path)
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text().replace('\\"fromType\\": \\"byte\\"', '\\"fromType\\": \\"string\\"'))
    with pytest.raises(lakemark.UnsupportedError, match=r"column whole .* from string to long.*copy the table"):
        lakemark.Table(tmp_path).scan().to_arrow()

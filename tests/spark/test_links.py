"""CALL lm.system.reach, links and path: walks over the links of a table, and indexes of links as jobs of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
import lakemark.spark
from test_catalog import refusal, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Link = tuple[object, object, object]

# What animals are and like; a link that is there twice, a circle, and links without an end.
ANIMALS: list[Link] = [
    ("cat", "is_a", "mammal"),
    ("dog", "is_a", "mammal"),
    ("mammal", "is_a", "animal"),
    ("cat", "likes", "fish"),
    ("fish", "is_a", "animal"),
    ("dog", "likes", "cat"),
    ("cat", "is_a", "mammal"),
    ("animal", "is_a", "thing"),
    ("thing", "has", "animal"),
    ("cat", None, "sofa"),
    (None, "is_a", "animal"),
    ("cat", "is_a", None),
]


def write(path: Path, links: list[Link], first: int = 0) -> None:
    columns = {name: [link[place] for link in links] for place, name in enumerate("spo")}
    pq.write_table(pa.table({"id": pa.array(range(first, first + len(links)), pa.int64()), **columns}), path)


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    folder = tmp_path / "animals"
    folder.mkdir()
    write(folder / "a.parquet", ANIMALS[:6])
    write(folder / "b.parquet", ANIMALS[6:], 6)
    spark.sql(f"CREATE INDEX edges ON lm.`{folder}` USING links (s, p, o) OPTIONS (files_per_segment = '1')")
    return folder


def test_an_index_of_links_is_built_and_dropped_both_ways(spark: SparkSession, folder: Path) -> None:
    def listed() -> list[tuple[object, ...]]:
        return rows(spark, f"SELECT name, kind, column, coverage FROM lm.`{folder}$indexes` ORDER BY name")

    both = [("edges", "links", "s, p, o", 1.0), ("edges_back", "links", "o, p, s", 1.0)]
    assert listed() == both
    write(folder / "c.parquet", [("cow", "is_a", "mammal")], 100)
    assert [row[-1] for row in listed()] == pytest.approx([2 / 3] * 2)
    report = lakemark.spark.build(spark, folder, progress=False, index="edges")
    assert sorted(report.indexes) == ["edges", "edges_back"]
    assert listed() == both
    assert [(each.files_ok, each.damaged) for each in lakemark.Table(folder).verify().indexes] == [(3, [])] * 2
    spark.sql(f"DROP INDEX edges ON lm.`{folder}`")
    assert listed() == []


@pytest.mark.parametrize(
    ("call", "columns", "expected"),
    [
        (
            "reach(table => '{}', start => 'cat', via => 'is_a', direction => 'out', max_depth => 3)",
            ["node", "depth"],
            [("mammal", 1), ("animal", 2), ("thing", 3)],
        ),
        ("reach('{}', 'cat', 'is_a', 'out', 2, 2)", ["node", "depth"], [("animal", 2)]),
        ("reach('{}', 'animal', min_depth => 0)", ["node", "depth"], [("animal", 0), ("thing", 1)]),
        ("reach('{}', 'animal')", ["node", "depth"], [("thing", 1), ("animal", 2)]),
        (
            "reach('{}', 'mammal', array('is_a', 'likes'), direction => 'in')",
            ["node", "depth"],
            [("cat", 1), ("dog", 1)],
        ),
        (
            "reach('{}', array('fish', 'dog'), 'is_a', max_depth => 1)",
            ["node", "depth"],
            [("animal", 1), ("mammal", 1)],
        ),
        ("reach('{}', 'cat', limit => 0)", ["node", "depth"], []),
        ("reach('{}', 'cat', via => 'eats')", ["node", "depth"], []),
        ("reach('{}', 'unicorn')", ["node", "depth"], []),
        (
            "links('{}', 'cat')",
            ["from", "predicate", "node"],
            [("cat", None, "sofa"), ("cat", "is_a", "mammal"), ("cat", "likes", "fish")],
        ),
        (
            "links(table => '{}', node => 'animal', via => NULL, direction => 'in')",
            ["from", "predicate", "node"],
            [("animal", "has", "thing"), ("animal", "is_a", "fish"), ("animal", "is_a", "mammal")],
        ),
        ("links('{}', 'cat', 'likes', limit => 5)", ["from", "predicate", "node"], [("cat", "likes", "fish")]),
        (
            "path(table => '{}', from => 'dog', to => 'thing', via => 'is_a')",
            ["step", "node", "predicate"],
            [(0, "dog", None), (1, "mammal", "is_a"), (2, "animal", "is_a"), (3, "thing", "is_a")],
        ),
        ("path('{}', 'dog', 'thing', 'is_a', 'out', 2)", ["step", "node", "predicate"], []),
        ("path('{}', 'cat', 'cat')", ["step", "node", "predicate"], [(0, "cat", None)]),
    ],
)
def test_walks_are_called_by_name_and_by_place(
    spark: SparkSession, folder: Path, call: str, columns: list[str], expected: list[tuple[object, ...]]
) -> None:
    found = spark.sql(f"CALL lm.system.{call.format(folder)}")
    assert found.columns == columns
    assert [tuple(row) for row in found.collect()] == expected


def test_rows_are_those_of_python_and_of_our_own_sql(spark: SparkSession, folder: Path) -> None:
    session = lakemark.connect()
    session.sql(f"CREATE EXTERNAL TABLE kb STORED AS LAKEMARK LOCATION '{folder}'")
    for call, own in (
        ("reach('{}', 'dog')", "SELECT * FROM reach('kb', 'dog') ORDER BY depth, node"),
        ("links('{}', 'dog')", "SELECT * FROM links('kb', 'dog') ORDER BY predicate, node"),
        ("path('{}', 'dog', 'thing')", "SELECT * FROM path('kb', 'dog', 'thing') ORDER BY step"),
    ):
        expected = session.sql(own).to_arrow()
        found = spark.sql(f"CALL lm.system.{call.format(folder)}")
        assert found.columns == expected.column_names
        assert [tuple(row) for row in found.collect()] == [tuple(row.values()) for row in expected.to_pylist()]


def test_buffered_changes_and_new_files_are_links_at_once(spark: SparkSession, folder: Path) -> None:
    reached = f"CALL lm.system.reach('{folder}', 'cat', 'is_a')"
    assert rows(spark, reached) == [("mammal", 1), ("animal", 2), ("thing", 3)]
    table = lakemark.Table(folder, key="id")
    table.update([{"id": 2, "o": "vertebrate"}])
    assert rows(spark, reached) == [("mammal", 1), ("vertebrate", 2)]
    spark.sql(f"INSERT INTO lm.`{folder}` (id, s, p, o) VALUES (50, 'vertebrate', 'is_a', 'being')")
    write(folder / "c.parquet", [("being", "is_a", "all")], 60)
    assert rows(spark, reached) == [("mammal", 1), ("vertebrate", 2), ("being", 3), ("all", 4)]
    spark.sql(f"DELETE FROM lm.`{folder}` WHERE id = 0")
    # Another row is the same link.
    assert rows(spark, reached)[0] == ("mammal", 1)
    spark.sql(f"DELETE FROM lm.`{folder}` WHERE id = 6")
    assert rows(spark, reached) == []


def test_nodes_are_numbers_or_bytes_and_columns_may_be_named(spark: SparkSession, tmp_path: Path) -> None:
    numbers, blobs = tmp_path / "numbers", tmp_path / "blobs"
    numbers.mkdir()
    ids = [0, 1, 2, 3]
    table = pa.table({"a": pa.array(ids, pa.int32()), "b": pa.array([1, 2, 3, 0], pa.int32()), "kind": ids})
    pq.write_table(table, numbers / "a.parquet")
    call = f"CALL lm.system.reach('{numbers}', 1, max_depth => 2, columns => array('A', 'b'))"
    assert spark.sql(call).dtypes == [("node", "int"), ("depth", "bigint")]
    assert rows(spark, call) == [(2, 1), (3, 2)]
    assert rows(spark, call.replace("1, max", "array(CAST(1 AS SMALLINT), 3), max")) == [(0, 1), (2, 1), (1, 2), (3, 2)]
    through = f"CALL lm.system.path('{numbers}', from => 3L, to => 1, columns => array('a', 'kind', 'b'), via => 3)"
    assert rows(spark, through) == []
    assert rows(spark, through.replace("via => 3", "via => array(3, 0)")) == [(0, 3, None), (1, 0, 3), (2, 1, 0)]
    blobs.mkdir()
    pq.write_table(pa.table({"a": [b"\xff", b"\x00"], "b": [b"\x00", b"z"]}), blobs / "a.parquet")
    found = rows(spark, f"CALL lm.system.reach('{blobs}', X'FF', columns => array('a', 'b'))")
    assert found == [(b"\x00", 1), (b"z", 2)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("reach('{}', 'cat', max_depth => 0)", "InvalidInput: nodes at least 1 and at most 0 links away"),
        ("reach('{}', 'cat', direction => 'up')", "InvalidInput: there is no direction up"),
        ("reach('{}', 'cat', min_depth => -1)", "InvalidInput: min_depth is -1, it must be 0 or more"),
        ("reach('{}', 'cat', memory => 0)", "InvalidInput: memory is 0, it must be 1 or more"),
        ("reach('{}', 'cat', memory => 1)", "Unsupported: the nodes that the walk has seen take"),
        ("reach('{}', NULL)", "InvalidInput: reach needs a value for start"),
        ("reach(NULL, 'cat')", "InvalidInput: reach needs a value for table"),
        ("reach('{}', 1.5D)", "InvalidInput: start is of the type DOUBLE; nodes and predicates are whole numbers"),
        ("reach('{}', X'FF')", "InvalidInput: a node of the links is of the type"),
        ("reach('{}', array('cat', NULL))", "InvalidInput: start has a NULL in it"),
        ("reach('{}', 'cat', columns => array('s', 'q'))", "NotFound: there is no flat column q"),
        ("reach('{}', 'cat', columns => array('s'))", "InvalidInput: links are made of"),
        ("links('{}', 'cat', 'likes', columns => array('s', 'o'))", "InvalidInput: the links have no predicate"),
        ("path('{}', array('cat', 'dog'), 'fish')", "InvalidInput: a path is from one node to one"),
        ("reach('{}')", "start"),
        ("reach('{}', 'cat', far => 1)", "far"),
        ("reach('absent', 'cat')", "there is no table absent in the catalog lm"),
    ],
)
def test_calls_that_make_no_sense_are_errors_of_a_kind(
    spark: SparkSession, folder: Path, call: str, words: str
) -> None:
    text = refusal(spark, f"CALL lm.system.{call.format(folder)}")
    kind, _, rest = words.rpartition(": ")
    assert rest in text
    assert kind in text


def test_a_table_without_links_says_what_to_do(spark: SparkSession, folder: Path) -> None:
    call = f"CALL lm.system.reach('{folder}', 'cat')"
    spark.sql(f"CREATE INDEX more ON lm.`{folder}` USING links (s, o)")
    assert "there are links over (s, o) and (s, p, o)" in refusal(spark, call)
    spark.sql(f"DROP INDEX edges ON lm.`{folder}`")
    spark.sql(f"DROP INDEX more ON lm.`{folder}`")
    text = refusal(spark, call)
    assert "LakemarkException$NotFound" in text
    assert "CREATE INDEX … USING links (subject, predicate, object)" in text
    refused = refusal(spark, f"CREATE INDEX edges ON lm.`{folder}` USING links (id, p, o)")
    assert "different types" in refused

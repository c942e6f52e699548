"""Bad input gives the right class, a message that helps, and loses nothing."""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.reports import IndexKind

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Judged


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InvalidInputError", ValueError),
        ("NotFoundError", FileNotFoundError),
        ("AlreadyExistsError", FileExistsError),
        ("UnsupportedError", NotImplementedError),
        ("MissingPackageError", ImportError),
        ("SchemaMismatchError", TypeError),
        ("ConstraintViolationError", ValueError),
        ("ConflictError", lakemark.LakemarkError),
        ("CacheFullError", lakemark.LakemarkError),
        ("SnapshotExpiredError", lakemark.LakemarkError),
        ("CorruptError", lakemark.LakemarkError),
        ("LakemarkIOError", OSError),
        ("CancelledError", lakemark.LakemarkError),
        ("InternalError", RuntimeError),
    ],
)
def test_each_kind_has_a_class_with_a_familiar_base(name: str, builtin: type[Exception]) -> None:
    kind: type[lakemark.LakemarkError] = getattr(lakemark, name)
    error = kind("what to do")
    assert isinstance(error, lakemark.LakemarkError)
    assert isinstance(error, builtin)
    assert str(error) == "what to do"
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), str(copy)) == (kind, "what to do")


def test_every_exception_class_is_exported() -> None:
    classes = [value for _, value in inspect.getmembers(lakemark.exceptions, inspect.isclass)]
    assert len(classes) == 17
    for kind in classes:
        assert getattr(lakemark, kind.__name__) is kind
        assert kind.__name__ in lakemark.exceptions.__all__


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(lakemark.NotFoundError, match="nowhere"):
        lakemark.Table(tmp_path / "nowhere").count()


def test_a_folder_without_parquet(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no table")
    with pytest.raises(lakemark.LakemarkError, match=r"(?i)parquet"):
        lakemark.Table(tmp_path).count()


def test_a_column_that_is_not_there(plain: Judged) -> None:
    with pytest.raises(lakemark.NotFoundError, match="town"):
        plain.table.create_index("town", progress=False)
    with pytest.raises(lakemark.LakemarkError, match="town"):
        plain.table.count("town = 'Oslo'")
    with pytest.raises(lakemark.LakemarkError, match="town"):
        plain.table.scan(columns=["town"])


def test_an_index_that_exists(indexed: Judged) -> None:
    with pytest.raises(lakemark.AlreadyExistsError, match="by_city"):
        indexed.table.create_index("city", name="by_city", progress=False)
    assert len(indexed.table.indexes) == 3


def test_an_index_that_does_not(indexed: Judged) -> None:
    with pytest.raises(lakemark.NotFoundError, match="by_moon"):
        indexed.table.drop_index("by_moon")
    with pytest.raises(lakemark.NotFoundError, match="by_moon"):
        indexed.table.build(index="by_moon", progress=False)


def test_an_option_and_a_kind_nobody_knows(plain: Judged) -> None:
    with pytest.raises(lakemark.InvalidInputError, match="colour"):
        plain.table.create_index("city", progress=False, colour="blue")
    kinds = ", ".join(["auto", *get_args(IndexKind)])
    with pytest.raises(lakemark.LakemarkError, match=f"btree; this release has {kinds}$"):
        plain.table.create_index("city", using="btree", progress=False)  # type: ignore[arg-type]
    assert plain.table.indexes == []


def test_a_type_that_cannot_be_indexed(tmp_path: Path) -> None:
    rows = {"tags": [["a"], ["b", "c"]], "deep": [[["a"]], []]}
    pq.write_table(pa.table(rows), tmp_path / "one.parquet")
    table = lakemark.Table(tmp_path)
    with pytest.raises(lakemark.UnsupportedError, match="deep"):
        table.create_index("deep", progress=False)
    with pytest.raises(lakemark.UnsupportedError, match="tags has lists"):
        table.create_index("tags", using="summary", progress=False)
    assert table.indexes == []
    table.create_index("tags", progress=False)
    assert table.count("array_has(tags, 'b')") == 1
    assert [index.name for index in table.indexes] == ["tags_bitmap"]


def test_columns_whose_types_disagree_name_file_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": ["one", "two"]}), tmp_path / "b.parquet")
    with pytest.raises(lakemark.SchemaMismatchError, match=r"(?s)x.*(a|b)\.parquet|(a|b)\.parquet.*x"):
        lakemark.Table(tmp_path).count("x = 1")


def test_a_data_file_cut_short(plain: Judged) -> None:
    path = plain.folder / "part-2.parquet"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(lakemark.LakemarkError, match=r"part-2\.parquet"):
        plain.table.create_index("city", progress=False)


@pytest.mark.parametrize("condition", ["city =", "SELECT 1", "city = 'Oslo' ; DROP TABLE t", "id + 1", ""])
def test_conditions_that_are_none(plain: Judged, condition: str) -> None:
    with pytest.raises(lakemark.InvalidInputError):
        plain.table.count(condition)


def test_statements_that_are_none() -> None:
    session = lakemark.connect()
    for text in ("SELEC 1", "SELECT * FROM nowhere", "CREATE INDEX i ON nowhere USING bitmap (x)"):
        with pytest.raises(lakemark.LakemarkError):
            session.sql(text)
    with pytest.raises(lakemark.InvalidInputError):
        session.sql("SELEC 1")


def test_arguments_of_the_wrong_type_are_type_errors(plain: Judged) -> None:
    with pytest.raises(TypeError):
        plain.table.count(7)  # type: ignore[arg-type]
    with pytest.raises((TypeError, OverflowError)):
        plain.table.scan(limit=-1).to_arrow()


def test_the_last_snapshot_answers_after_every_failure(indexed: Judged) -> None:
    expected = indexed.count("city = 'Oslo'")
    for bad in ({"columns": "nope"}, {"columns": "city", "name": "by_city"}, {"columns": "city", "using": "x"}):
        with pytest.raises(lakemark.LakemarkError):
            indexed.table.create_index(**bad, progress=False)  # type: ignore[arg-type]
    assert indexed.table.count("city = 'Oslo'") == expected
    assert indexed.table.explain("city = 'Oslo'").rows_exact == expected

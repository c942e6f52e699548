"""`lakemark.spark` without Spark: finding the jar, and what is set on a builder. Spark itself is in tests/spark."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

import pytest

import lakemark
import lakemark.spark

if TYPE_CHECKING:
    from pathlib import Path


class Builder:
    """Keeps options as PySpark's builder does."""

    def __init__(self) -> None:
        self._options: dict[str, str] = {}

    def config(self, key: str, value: str) -> Builder:
        self._options[key] = value
        return self

    @property
    def options(self) -> dict[str, str]:
        return self._options


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the installed package's folder."""
    monkeypatch.setattr(lakemark.spark, "files", lambda _name: tmp_path)
    return tmp_path


@pytest.fixture
def jar(package: Path) -> Path:
    jar = package / "jars" / "lakemark-spark.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"PK")
    return jar


def test_configure_adds_the_jar_and_returns_the_builder(jar: Path) -> None:
    builder = Builder()
    assert lakemark.spark.configure(builder) is builder
    assert builder.options == {"spark.jars": str(jar), "spark.sql.catalog.lm": "io.lakemark.spark.LakemarkCatalog"}


def test_configure_names_the_catalog_and_its_tables(jar: Path) -> None:
    builder = Builder()
    lakemark.spark.configure(builder, catalog="c", warehouse=jar.parent, tables={"db.t": "s3://b/t", "u": jar})
    assert builder.options == {
        "spark.jars": str(jar),
        "spark.sql.catalog.c": "io.lakemark.spark.LakemarkCatalog",
        "spark.sql.catalog.c.warehouse": str(jar.parent),
        "spark.sql.catalog.c.tables.db.t": "s3://b/t",
        "spark.sql.catalog.c.tables.u": str(jar),
    }


def test_configure_keeps_jars_and_adds_ours_once(jar: Path) -> None:
    builder = Builder().config("spark.jars", "/a.jar,/b.jar")
    lakemark.spark.configure(lakemark.spark.configure(builder))
    assert builder.options["spark.jars"] == f"/a.jar,/b.jar,{jar}"


def connector(jar: Path, release: str) -> str:
    jar.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\nImplementation-Version: {release}\r\n")
    return str(jar)


def test_a_connector_that_is_named_already_is_taken_if_it_is_of_this_release(jar: Path) -> None:
    theirs = connector(jar.parents[1] / "cluster" / "lakemark-spark-3.jar", lakemark.__version__)
    builder = Builder().config("spark.jars", f"/a.jar,{theirs}")
    lakemark.spark.configure(builder)
    assert builder.options["spark.jars"] == f"/a.jar,{theirs}"


def test_a_connector_of_another_release_is_refused_with_both_named(jar: Path) -> None:
    connector(jar, "0.0.9")
    theirs = connector(jar.parents[1] / "cluster" / "lakemark-spark.jar", "9.1.0")
    for builder, release in ((Builder(), "0.0.9"), (Builder().config("spark.jars", f"file:{theirs}"), "9.1.0")):
        with pytest.raises(lakemark.UnsupportedError) as refused:
            lakemark.spark.configure(builder)
        assert f"has the connector of lakemark {release} and this Python package is lakemark " in str(refused.value)
        assert lakemark.__version__ in str(refused.value)


def test_configure_adds_the_extension_to_others_if_asked(jar: Path) -> None:
    builder = Builder().config("spark.sql.extensions", "a.Extension")
    lakemark.spark.configure(lakemark.spark.configure(builder, accelerate=True), accelerate=True)
    ours = "io.lakemark.spark.extension.LakemarkExtension"
    assert builder.options["spark.sql.extensions"] == f"a.Extension,{ours}"
    assert "spark.sql.extensions" not in lakemark.spark.configure(Builder()).options
    assert builder.options["spark.jars"] == str(jar)


def test_without_a_jar_the_error_says_what_to_install(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = rf'pip install "lakemark-spark=={re.escape(lakemark.__version__)}"'
    with pytest.raises(lakemark.NotFoundError, match=said):
        lakemark.spark.jar_path()
    assert not (package / "jars").exists()

    def missing(name: str) -> Path:
        if name == "lakemark":
            return package
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(lakemark.spark, "files", missing)
    with pytest.raises(lakemark.NotFoundError, match=said):
        lakemark.spark.configure(Builder())


def test_the_jar_of_its_own_package_is_found_and_what_a_checkout_built_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"lakemark": tmp_path / "lakemark", "lakemark_spark": tmp_path / "lakemark_spark"}
    monkeypatch.setattr(lakemark.spark, "files", folders.__getitem__)
    own = folders["lakemark_spark"] / "lakemark-spark.jar"
    own.parent.mkdir()
    own.write_bytes(b"PK")
    assert lakemark.spark.jar_path() == own
    built = folders["lakemark"] / "jars" / "lakemark-spark.jar"
    built.parent.mkdir(parents=True)
    built.write_bytes(b"PK")
    assert lakemark.spark.jar_path() == built

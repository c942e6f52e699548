"""The operators' page about Spark has every setting and every kind of error that the connector knows."""

from __future__ import annotations

import re

from test_examples import ROOT

JAVA = ROOT / "spark-plugin" / "src" / "main" / "java" / "io" / "lakemark" / "spark"
PAGE = (ROOT / "docs" / "spark-operations.md").read_text("utf-8")
# Properties of a job and of a query, which nobody sets.
NO_SETTINGS = {"spark.job.description", "spark.sql.execution.id", "lakemark.spark_schema"}


def source(name: str) -> str:
    (path,) = JAVA.rglob(f"{name}.java")
    return path.read_text("utf-8")


def known_options(name: str) -> set[str]:
    """The set of options that a class says it knows, constants by their values, with those of another class."""
    text = source(name)
    constants = dict(re.findall(r'String (\w+) = "([\w.]+)"', text))
    (said,) = re.findall(r"KNOWN =\s+([^;]*);", text)
    lists = re.findall(r"(?:List|Stream)\.of\(([^)]*)\)", said)
    words = [word.strip() for listed in lists for word in listed.split(",")]
    others = {option for other in re.findall(r"(\w+)\.KNOWN", said) for option in known_options(other)}
    return others | {constants[word] if word in constants else word.strip('"') for word in words}


def test_settings_of_sessions_and_processes_are_on_the_page() -> None:
    literal = re.compile(r'"((?:spark|lakemark)\.[\w.]+)"')
    found = {name for path in JAVA.rglob("*.java") for name in literal.findall(path.read_text("utf-8"))} - NO_SETTINGS
    assert {"lakemark.native.path", "spark.task.cpus"} <= found
    # What ends with a dot is followed by a name of the user's.
    shown = {name: f"`{name}" if name.endswith(".") else f"`{name}`" for name in sorted(found)}
    assert [name for name, text in shown.items() if text not in PAGE] == []


def test_options_of_catalog_reads_and_writes_are_on_the_page() -> None:
    catalog = set(re.findall(r'folded\.equals\("(\w+)"\)', source("LakemarkCatalog")))
    assert catalog == {"warehouse", "use_index"}
    assert [name for name in catalog if f"`spark.sql.catalog.NAME.{name}`" not in PAGE] == []
    read, write = known_options("LakemarkOptions"), known_options("LakemarkChange")
    assert read == {"path", "store", "use_index", "version", "max_staleness"}
    assert read < write
    assert [name for name in sorted(write) if f"`{name}`" not in PAGE] == []


def test_every_kind_of_error_has_a_next_step() -> None:
    kinds = re.findall(r"public static final class (\w+) extends LakemarkException", source("LakemarkException"))
    assert len(kinds) == 14
    assert [kind for kind in kinds if not re.search(rf"^\| `{kind}` \|[^|]+\|", PAGE, re.MULTILINE)] == []

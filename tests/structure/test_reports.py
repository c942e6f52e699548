"""A report has the same fields in Rust and in Python, and the columns of Spark's procedures have their names."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUST = [*ROOT.glob("rust/table/src/report/*.rs"), ROOT / "rust/table/src/indexing/advise/report.rs"]
PYTHON = [*ROOT.glob("python/lakemark/reports/*.py"), ROOT / "python/lakemark/advice.py"]
CATALOG = ROOT / "spark-plugin/src/main/java/io/lakemark/spark/catalog"

STRUCT = re.compile(r"^pub struct (\w+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"^    pub (\w+):", re.MULTILINE)
# The lists that shell and SQL show, each a function in Rust with the names of its columns.
LIST = re.compile(r"^pub fn (\w+_rows)\(.*?^\}", re.DOTALL | re.MULTILINE)
COLUMN_OF_LIST = re.compile(r"^ +\(\"(\w+)\",", re.MULTILINE)
DEFINITION = re.compile(r"^    define\((.*?)\);$", re.DOTALL | re.MULTILINE)
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
COLUMN_OF_SPARK = re.compile(r"(?:^|,)\s*(\w+) (?:STRING|BIGINT|DOUBLE|BOOLEAN|TIMESTAMP|ARRAY<\w+>)")

# Reports that Python calls otherwise than Rust.
IN_PYTHON = {"IndexInfo": "Index", "VersionInfo": "Version", "LeafReport": "Leaf", "ProbeReport": "ExplainReport"}
# What people read of a report has a text in Python, which Rust makes of the rest.
DRAWN = {"Description"}
# In JSON a time is a number, whose unit the name says.
TIME = {"time_ms": "time"}
# What a row of a procedure is. A file that a vacuum removes also has what the report says of all of them.
ROW_OF = {
    "advise": ["Proposal"],
    "build": ["BuildReport"],
    "compact": ["CompactReport"],
    "migrate": ["MigrateReport"],
    "publish": ["PublishReport"],
    "vacuum": ["Waste", "dry_run"],
    "verify": ["IndexVerdict"],
}
# These have no report, but an answer that the connector's native half makes.
ANSWERS = {"declare_key", "repair"}


@cache
def rust() -> dict[str, list[str]]:
    text = "\n".join(path.read_text(encoding="utf-8") for path in RUST)
    return {name: [TIME.get(each, each) for each in FIELD.findall(body)] for name, body in STRUCT.findall(text)}


@cache
def python() -> dict[str, list[str]]:
    found = {}
    for path in PYTHON:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
                found[node.name] = [field.id for field in fields if isinstance(field, ast.Name)]
    return found


@cache
def lists() -> dict[str, list[str]]:
    text = (ROOT / "rust/table/src/report/listing.rs").read_text(encoding="utf-8")
    return {found[1]: COLUMN_OF_LIST.findall(found[0]) for found in LIST.finditer(text)}


@cache
def procedures() -> dict[str, list[str]]:
    """The columns of each procedure. Name, description, arguments and columns are lines of its definition."""
    found = {}
    for definition in DEFINITION.findall((CATALOG / "Procedures.java").read_text(encoding="utf-8")):
        name, _, _, columns, *_ = definition.split(",\n")
        found[text_of(name) or name.strip().lower()] = COLUMN_OF_SPARK.findall(text_of(columns))
    return found


def text_of(argument: str) -> str:
    return "".join(TEXT.findall(argument))


def test_python_has_the_fields_that_rust_has() -> None:
    called = {name: IN_PYTHON.get(name, name) for name in rust() if name not in DRAWN}
    shared = {name: python_name for name, python_name in called.items() if python_name in python()}
    assert {"BuildReport", "IndexInfo", "LeafReport", "Proposal", "UpdatesInfo", "VersionInfo"} <= set(shared)
    for name, python_name in shared.items():
        assert python()[python_name] == rust()[name], python_name


@pytest.mark.parametrize(("shown", "of"), [("index_rows", "IndexInfo"), ("version_rows", "VersionInfo")])
def test_lists_have_columns_of_their_reports(shown: str, of: str) -> None:
    assert lists()[shown], shown
    assert set(lists()[shown]) <= set(rust()[of])


def test_every_procedure_is_looked_at() -> None:
    assert set(procedures()) == {*ROW_OF, *ANSWERS, "history"}


@pytest.mark.parametrize("procedure", sorted(ROW_OF))
def test_rows_of_procedures_have_the_fields_of_their_reports(procedure: str) -> None:
    report, *more = ROW_OF[procedure]
    assert procedures()[procedure] == [*rust()[report], *more]


def test_rows_of_lists_are_those_of_shell_and_sql() -> None:
    assert procedures()["history"] == lists()["version_rows"]
    source = (CATALOG / "IndexListTable.java").read_text(encoding="utf-8")
    schema = source.split("StructType.fromDDL(", 1)[1].split(";", 1)[0]
    assert COLUMN_OF_SPARK.findall(text_of(schema)) == lists()["index_rows"]


@pytest.mark.parametrize("procedure", sorted(ANSWERS))
def test_columns_of_answers_are_their_fields(procedure: str) -> None:
    native = (ROOT / "rust/jni/src/maintain.rs").read_text(encoding="utf-8")
    answers = [re.findall(r'"(\w+)":', body) for body in re.findall(r"json!\(\{(.*?)\}\)", native)]
    assert procedures()[procedure] in answers

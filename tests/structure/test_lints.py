"""Lints: what one file says for all, and where a file has to follow it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tomllib

RUST = Path(__file__).parents[2] / "rust"
# By a panic a target of fuzzing says that it found something.
PANICS = {"expect_used", "indexing_slicing", "panic", "unwrap_used"}


def manifest(path: str) -> Any:
    """A manifest of Cargo."""
    return tomllib.loads((RUST / path).read_text(encoding="utf-8"))


def test_fuzzing_has_the_lints_of_the_workspace_but_for_panics() -> None:
    lints = manifest("Cargo.toml")["workspace"]["lints"]
    assert set(lints["clippy"]) >= PANICS
    lints["clippy"] = {name: level for name, level in lints["clippy"].items() if name not in PANICS}
    assert manifest("fuzz/Cargo.toml")["lints"] == lints


def test_fuzzing_begins_with_files_that_there_are() -> None:
    smoke = (RUST / "fuzz" / "smoke").read_text(encoding="utf-8")
    seeds = re.findall(r'"\$tests(?:"|/)(/?[\w/.*]+)', smoke)
    assert len(seeds) > 1
    tests = RUST.parent / "tests"
    files = [path.name for seed in seeds for path in tests.glob(f"{seed.strip('/')}/*")]
    # A leaf of each kind among them.
    assert {"packed.lmx", "covering.lmx", "links.lmx"} <= set(files), seeds


def test_the_runner_of_the_suite_of_datafusion_has_the_lints_of_the_workspace() -> None:
    assert manifest("sqllogic/Cargo.toml")["lints"] == manifest("Cargo.toml")["workspace"]["lints"]


def test_every_crate_has_the_lints_of_the_workspace() -> None:
    members = manifest("Cargo.toml")["workspace"]["members"]
    assert len(members) > 1
    assert [manifest(f"{member}/Cargo.toml")["lints"] for member in members] == [{"workspace": True}] * len(members)


def test_crates_of_tests_are_tests_for_clippy() -> None:
    crates = sorted([*RUST.glob("*/tests/*.rs"), *RUST.glob("*/tests/it/main.rs")])
    assert len(crates) > 5
    unlike = [crate for crate in crates if "\n#![cfg(test)]\n" not in crate.read_text(encoding="utf-8")]
    assert not unlike


def test_libraries_let_off_no_lint_without_noticing_when_it_is_met() -> None:
    sources = sorted(RUST.glob("*/src/**/*.rs"))
    assert len(sources) > 100
    allowed = re.compile(r"#!?\[(?:cfg_attr\([^\]]*)?allow\(")
    assert not [path for path in sources if allowed.search(path.read_text(encoding="utf-8"))]

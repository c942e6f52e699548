"""Modules of a crate depend on each other in one direction; rooms that do not yet are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import catalogue
import house
import java
from modules import absolute, bare, circles, paths, read, unfolded

RUST = Path(__file__).parents[2] / "rust"

# Sets of modules that lead back to each other, by the room that they are in. They may only get fewer.
CIRCLES: dict[str, dict[str, list[set[str]]]] = {
    "allocator": {},
    "format": {},
    "index": {},
    "table": {},
    "catalog": {},
    "datafusion": {},
    "serve": {},
    "cli": {},
    "jni": {},
    "python": {},
    "sqllogic": {},
}


@pytest.mark.parametrize("name", sorted(CIRCLES))
def test_no_module_leads_back_to_itself_that_did_not_before(name: str) -> None:
    crate = read(RUST / name).circles()
    for room in sorted({*crate, *CIRCLES[name]}):
        found = [set(circle) for circle in crate.get(room, [])]
        known = CIRCLES[name].get(room, [])
        where = f"{name}, {room or 'top level'}"
        new = [sorted(circle) for circle in found if not any(circle <= old for old in known)]
        assert not new, f"{where}: these modules lead back to each other; a module may use those below it alone: {new}"
        gone = [sorted(old) for old in known if old not in found]
        assert not gone, (
            f"{where}: these modules do not lead back to each other any more; write down what is left: {gone}"
        )


def test_packages_of_the_connector_depend_in_one_direction() -> None:
    assert circles(java.packages(RUST.parent)) == []


def test_packages_of_the_connector_use_of_the_root_what_every_package_may_know() -> None:
    known = {"LakemarkException", "LakemarkOptions", "LakemarkVersion"}
    used = {(package, name) for package, found in java.uses(RUST.parent).items() for other, name in found if not other}
    assert {(package, name) for package, name in used if name not in known} == set()


def test_public_members_of_the_connector_have_javadoc() -> None:
    assert java.undocumented(RUST.parent) == []


def test_every_crate_is_looked_at() -> None:
    crates = {path.parent.name for path in RUST.glob("*/Cargo.toml") if (path.parent / "src").is_dir()}
    assert crates == set(CIRCLES)


def test_tests_are_no_modules() -> None:
    modules = {module for name in CIRCLES for module in read(RUST / name).uses}
    assert not [module for module in modules if "tests" in module.split("::")]


def test_paths_are_found_in_code_alone() -> None:
    code = """
    // use crate::comment::A;
    use crate::{a::{B, c::D}, e as f};
    const TEXT: &str = "crate::text::X";
    fn g() { super::h::i(); crate::j(); }
    #[cfg(test)]
    mod tests { use crate::tested::T; }
    """
    assert paths(bare(code)) == {"crate::a::B", "crate::a::c::D", "crate::e", "super::h::i", "crate::j"}
    assert absolute("super::h::i", "k::l") == ["k", "h", "i"]
    assert unfolded("crate::{a, b::{c}}") == ["crate::a", "crate::b::c"]


def test_names_that_a_head_has_from_elsewhere_lead_to_their_module(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; pub use a::b::B;",
        "a.rs": "mod b; mod c; use self::c::C;",
        "a/b.rs": "use super::C;",
        "a/c.rs": "use crate::B;",
    }
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert read(tmp_path).circles() == {"a": [["b", "c"]]}


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_the_head_of_a_room_says_what_it_uses_and_its_invariant() -> None:
    rooms = {
        RUST / crate / "src" / f"{room}.rs": "//!"
        for crate in ("table", "datafusion")
        for room in read(RUST / crate).rooms
        if "::" not in room
    }
    packages = dict.fromkeys((RUST.parent / java.SOURCES).glob("*/package-info.java"), " *")
    assert rooms, "no room was found"
    assert packages, "no package was found"
    for path, start in {**rooms, **packages}.items():
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith(start)]
        head = [line.removeprefix(start).strip().removeprefix("<p>") for line in lines]
        for said in (("Uses ", "It uses "), ("Invariant: ",)):
            assert any(line.startswith(said) for line in head), f"{path}: no line of its head begins with {said[-1]!r}"


def test_the_map_names_rooms_and_modules_that_are_there() -> None:
    """The table of rooms in ARCHITECTURE.md."""
    text = (RUST.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = text.split("| room | modules | invariant |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    modules = set(read(RUST / "table").uses)
    for row in rows:
        rooms, inside = (re.findall(r"`(\w+)`", cell) for cell in row.split("|")[1:3])
        assert set(rooms) <= modules, row
        missing = [name for name in inside if not any(f"{room}::{name}" in modules for room in rooms)]
        assert not missing or inside == ["Table"], f"no module {missing} in {rooms}"


def test_the_house_is_drawn_as_it_is() -> None:
    drawn = house.PAGE.read_text(encoding="utf-8")
    assert drawn == house.page(), "the modules changed: run `python tests/structure/house.py`"


def test_the_suites_are_listed_as_they_are() -> None:
    listed = catalogue.PAGE.read_text(encoding="utf-8")
    assert listed == catalogue.page(), "the suites changed: run `python tests/structure/catalogue.py`"
    assert "|  |" not in listed, "a suite has no head"

"""The list of known differences from Spark's own suites, each with the reason."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# As Spark runs its suites; over files without an index; with Spark's scans and indexes; with views that the connector
# reads.
ENGINE, FILES, EXTENSION, CONNECTOR = "engine", "files", "extension", "connector"
RUNS = (ENGINE, FILES, EXTENSION, CONNECTOR)
OURS = frozenset(RUNS) - {ENGINE}
KEYS = {"at", "runs", "reason", "sometimes"}


class ListError(Exception):
    """A list that says too little, or the same twice."""


@dataclass(frozen=True)
class Entry:
    """Places that differ for one reason."""

    runs: frozenset[str]
    sometimes: bool


def item_of(place: str) -> str:
    """The file or the suite of a place: `group-by.sql:12`, `group-by.sql` or `ParquetV1QuerySuite: appending`."""
    name, found, rest = place.partition(": ")
    if found:
        return name
    name, found, rest = place.rpartition(":")
    return name if found and rest.isdigit() else place


def parse(text: str) -> dict[str, Entry]:
    """The places that are listed."""
    entries: dict[str, Entry] = {}
    for written in tomllib.loads(text).get("difference", []):
        check(written)
        entry = Entry(frozenset(written.get("runs", OURS)), written.get("sometimes", False))
        for place in written["at"]:
            if place in entries:
                raise ListError(f"{place} is listed twice")
            entries[place] = entry
    return entries


def check(written: dict[str, Any]) -> None:
    """Says what is wrong with an entry."""
    at = written.get("at")
    if not at:
        raise ListError(f"an entry names no place: {written}")
    if unknown := set(written) - KEYS:
        raise ListError(f"{at} has unknown keys: {sorted(unknown)}")
    if not str(written.get("reason", "")).strip():
        raise ListError(f"say why {at} differ")
    runs = written.get("runs", list(OURS))
    if not runs or set(runs) - set(RUNS):
        raise ListError(f"{at} are of unknown runs; there are {', '.join(RUNS)}")
    if ENGINE in runs and len(runs) > 1:
        raise ListError(f"{at} differ in Spark itself: no other run is compared then")


@dataclass
class Found:
    """What a whole test run found."""

    # The runs that each file or suite was part of.
    ran: dict[str, set[str]] = field(default_factory=dict)
    texts: dict[str, dict[str, str]] = field(default_factory=dict)

    def add_run(self, run: str, items: list[str], differing: Mapping[str, str]) -> None:
        """Adds what one run of some files or suites found."""
        for item in items:
            self.ran.setdefault(item, set()).add(run)
        for place, text in differing.items():
            self.texts.setdefault(place, {})[run] = text

    def settle(self, listed: Mapping[str, Entry]) -> None:
        """Leaves out what Spark by itself answers otherwise: nothing is compared with that."""
        for place, texts in list(self.texts.items()):
            in_engine = ENGINE in texts
            if ENGINE not in self.ran[item_of(place)]:
                in_engine = place in listed and ENGINE in listed[place].runs
            for run in OURS & set(texts) if in_engine else ():
                del texts[run]
            if not texts:
                del self.texts[place]

    def wrong(self, listed: Mapping[str, Entry]) -> list[str]:
        """What differs and is not listed, and what is listed and differs no longer."""
        said = []
        for place, texts in sorted(self.texts.items()):
            runs = ", ".join(run for run in RUNS if run in texts)
            entry = listed.get(place)
            if entry is None:
                said.append(f"{place} differs ({runs}):\n{self.text(place)}")
                continue
            expected = entry.runs & self.ran[item_of(place)]
            if not (set(texts) <= expected if entry.sometimes else set(texts) == expected):
                said.append(f"{place} differs in other runs than listed: {runs}")
        for place, entry in sorted(listed.items()):
            ran = entry.runs & self.ran.get(item_of(place), set())
            if ran and place not in self.texts and not entry.sometimes:
                said.append(f"{place} is listed and differs no longer; take it off the list")
        return said

    def text(self, place: str) -> str:
        """What differs at a place, once where it is the same in several runs."""
        return "\n".join(dict.fromkeys(self.texts[place].values()))

    def write_unlisted(self, listed: Mapping[str, Entry], folder: Path) -> None:
        """Writes what is not listed: every difference whole, and entries for the list that lack their reasons."""
        texts, entries = [], []
        for place in sorted(set(self.texts) - set(listed)):
            runs = [run for run in RUNS if run in self.texts[place]]
            texts.append(f"== {place} ({', '.join(runs)})\n{self.text(place)}\n")
            shown = self.text(place).strip().splitlines()[0][:120]
            entries.append(
                f'# {shown}\n[[difference]]\nat = [{json.dumps(place)}]\nruns = {json.dumps(runs)}\nreason = ""\n'
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "differences.txt").write_text("\n".join(texts), encoding="utf-8")
        (folder / "differences.toml").write_text("\n".join(entries), encoding="utf-8")

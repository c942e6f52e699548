"""The corpus as Python sees it: its predicates, its table, and the folders of indexes in every state."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tomllib

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).parents[2] / "corpus"
TABLE = CORPUS / "table"

sys.path.insert(0, str(CORPUS))
import make_table  # noqa: E402  (the generator lives beside the table, outside any package)

STALE_SEED = make_table.SEED + 1


@dataclass(frozen=True)
class Case:
    """One predicate of `predicates.toml`."""

    id: str
    sql: str
    duckdb: str | None = None
    spark: str | None = None
    rows: int | None = None
    differs: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> set[str]:
        """The table's columns that the predicate names."""
        without_text = re.sub(r"'(?:[^']|'')*'", "", self.sql)
        return set(re.findall(r"[a-z_][a-z_0-9]*", without_text)) & set(COLUMNS)


COLUMNS = ["id", *(name for name, _, _ in make_table.columns())]
CASES = [Case(**entry) for entry in tomllib.loads((CORPUS / "predicates.toml").read_text("utf-8"))["predicate"]]


@dataclass(frozen=True)
class Source:
    """Where data files are copied from, and which columns they have."""

    folder: Path
    columns: list[str]
    portable: bool = False

    def copy(self, folder: Path, names: list[str] | None = None) -> Path:
        """Copies all data files, or those of some names, into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in make_table.FILES:
            if names is None or file.name in names:
                shutil.copyfile(self.folder / file.name, folder / file.name)
        return folder


WHOLE = Source(TABLE, COLUMNS)


def portable_source(folder: Path) -> Source:
    """The same rows without the columns that plain Spark cannot read, written to the folder."""
    make_table.write_table(folder, portable=True)
    return Source(folder, [name for name in COLUMNS if name not in make_table.NOT_PORTABLE], portable=True)


if TYPE_CHECKING:
    # Declares an index for each of the columns and builds them all.
    CreateIndexes = Callable[[Path, list[str]], None]


def state_on(source: Source, folder: Path, create_indexes: CreateIndexes) -> None:
    """Every column indexed, every file covered."""
    create_indexes(source.copy(folder), source.columns)


def state_absent(source: Source, folder: Path, create_indexes: CreateIndexes) -> None:
    """Indexed, and the whole store removed."""
    create_indexes(source.copy(folder), source.columns)
    shutil.rmtree(folder / "_lakemark")


def state_half_built(source: Source, folder: Path, create_indexes: CreateIndexes) -> None:
    """Every second column indexed, and two of the four files added after the build."""
    create_indexes(source.copy(folder, ["part-0.parquet", "part-2.parquet"]), source.columns[::2])
    source.copy(folder, ["part-1.parquet", "part-3.parquet"])


def state_stale(source: Source, folder: Path, create_indexes: CreateIndexes) -> None:
    """Since the build one file was replaced by another of the same name and one has vanished."""
    source.copy(folder)
    old_rows = make_table.make_table(STALE_SEED, portable=source.portable)
    make_table.write_file(old_rows, make_table.FILES[1], folder)
    shutil.copyfile(folder / "part-0.parquet", folder / "part-9.parquet")
    create_indexes(folder, source.columns)
    source.copy(folder, ["part-1.parquet"])
    (folder / "part-9.parquet").unlink()


def state_segments_corrupted(source: Source, folder: Path, create_indexes: CreateIndexes) -> None:
    """Segments with a flipped byte in the middle or at the end, cut in half, emptied or removed; some left whole."""
    create_indexes(source.copy(folder), source.columns)
    segments = sorted((folder / "_lakemark").rglob("*.lmx"))
    assert segments, "the build wrote no segment: there is nothing to corrupt"
    for ordinal, path in enumerate(segments):
        damage(path, ordinal % 6)


def state_manifest_corrupted(source: Source, folder: Path, create_indexes: CreateIndexes) -> None:
    """Every manifest has a flipped byte."""
    create_indexes(source.copy(folder), source.columns)
    manifests = [path for path in (folder / "_lakemark" / "manifest").iterdir() if path.is_file()]
    assert manifests, "the build committed no manifest: there is nothing to corrupt"
    for path in manifests:
        damage(path, 0)


def state_buffered(source: Source, folder: Path, create_indexes: CreateIndexes) -> None:
    """Indexed with rows that are wrong, missing and too many; buffered updates in runs and buffer put them right."""
    folder.mkdir(parents=True)
    wrong = make_table.make_table(STALE_SEED, portable=source.portable)
    right: list[pa.Table] = []
    for file in make_table.FILES:
        rows = pq.read_table(source.folder / file.name)
        start, count = rows["id"][0].as_py(), rows.num_rows
        others = wrong.slice(start, count).select(rows.column_names).cast(rows.schema)
        extra = others.slice(0, 20)
        extra = extra.set_column(0, "id", pc.add(extra["id"], make_table.ROWS))
        # Places in the rows that are right, the others and those too many, laid end to end.
        places = [place + count if (start + place) % 5 == 0 else place for place in range(count)]
        places = [place for place in places if (start + place % count) % 7 != 3]
        laid = pa.concat_tables([rows, others, extra]).unify_dictionaries().combine_chunks()
        make_table.write_part(laid.take([*places, *range(2 * count, 2 * count + extra.num_rows)]), file, folder)
        right.append(rows)
    create_indexes(folder, source.columns)
    table = lakemark.Table(folder)
    table.declare_key("id", progress=False)
    for ordinal, rows in enumerate(right):
        table.insert(rows_where(rows, lambda n: n % 7 == 3))
        table.upsert(rows_where(rows, lambda n: n % 10 == 0))
        # A change of all columns but those that the file lacks.
        table.update(rows_where(rows, lambda n: n % 10 == 5))
        table.delete([n + make_table.ROWS for n in rows["id"][:20].to_pylist()])
        if ordinal < len(right) // 2:
            table.flush()


def rows_where(rows: pa.Table, wanted: Callable[[int], bool]) -> pa.Table:
    """The rows whose ids are wanted."""
    return rows.take([place for place, n in enumerate(rows["id"].to_pylist()) if wanted(n)])


def damage(path: Path, how: int) -> None:
    """Damages one file in one of five ways; any other number leaves it whole."""
    held = bytearray(path.read_bytes())
    if how == 0:
        held[len(held) // 2] ^= 0x10
    elif how == 1:
        held[-6] ^= 0x01
    elif how == 2:
        del held[len(held) // 2 :]
    elif how == 3:
        held.clear()
    elif how == 4:
        path.unlink()
        return
    path.write_bytes(bytes(held))


STATES: dict[str, Callable[[Source, Path, CreateIndexes], None]] = {
    "on": state_on,
    "absent": state_absent,
    "half_built": state_half_built,
    "stale": state_stale,
    "segments_corrupted": state_segments_corrupted,
    "manifest_corrupted": state_manifest_corrupted,
    "buffered": state_buffered,
}

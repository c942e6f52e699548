"""A Delta table that Lakemark and delta-rs change in turn, and what it should have.

*Base* is what every reader of Delta sees, *buffered* what Lakemark lays over it: for each key a row, its absence, or
columns that are set. Buffered changes win for their keys until they are migrated; a restore to an older version leaves
them alone and undoes migrations.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field, PrimitiveType

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Row = dict[str, Any]
INCLUDED = ["v", "w"]
TYPES = {"id": pa.int64(), "p": pa.int64(), "v": pa.int64(), "w": pa.string()}
ADDED = {"long": pa.int64(), "string": pa.string()}
# Prints the rows of a table, with indexes and without.
READER = """
import sys, lakemark
table = lakemark.Table(sys.argv[1])
for use_index in (True, False):
    rows = {row["id"]: row for row in table.scan(use_index=use_index).to_arrow().to_pylist()}
    print(sorted((key, sorted(row.items())) for key, row in rows.items()))
"""


class Neighbours:
    """A table and its neighbours."""

    def __init__(self, folder: Path, seed: int, without: set[str]) -> None:
        self.without = without
        self.folder = folder
        self.random = random.Random(seed)  # noqa: S311
        self.keys = self.random.choice([30, 120])
        self.types = dict(TYPES)
        self.base: dict[int, Row] = {}
        self.buffered: dict[int, Row | None] = {}
        # Keys of `buffered` whose row has only columns that are set.
        self.partial: set[int] = set()
        self.bases: dict[int, tuple[dict[int, Row], set[str]]] = {}
        self.oldest = 0
        self.trace: list[str] = []
        self.counts: dict[str, int] = {}
        partitions = ["p"] if self.random.random() < 0.4 else None
        rows = {key: self.row(key) for key in range(self.keys) if self.random.random() < 0.7}
        deltalake.write_deltalake(str(folder), self.table_of(rows.values()), partition_by=partitions)
        self.base = rows
        self.note()
        self.table = lakemark.Table(folder)
        # Small, so that there are many runs.
        self.table.declare_key(
            "id", progress=False, cache_bytes=self.random.choice([200_000, 5_000_000]), page_bytes=512
        )

    # ---- what is expected ----------------------------------------------------------------------------------------

    def row(self, key: int) -> Row:
        def value(name: str, kind: pa.DataType) -> Any:
            if name == "p":
                return self.random.randrange(3)
            if self.random.random() < 0.15:
                return None
            number = self.random.randrange(1000)
            return number if kind == pa.int64() else f"s{number}"

        return {"id": key} | {name: value(name, kind) for name, kind in self.types.items() if name != "id"}

    def table_of(self, rows: Iterable[Row]) -> pa.Table:
        rows = list(rows)
        return pa.table(
            {name: pa.array([row.get(name) for row in rows], kind) for name, kind in self.types.items()},
        )

    def rows(self) -> dict[int, Row]:
        rows = {key: dict(row) for key, row in self.base.items()}
        for key, change in self.buffered.items():
            if key in self.partial:
                if key in rows and change is not None:
                    rows[key] |= change
            elif change is None:
                rows.pop(key, None)
            else:
                rows[key] = dict(change)
        return rows

    def folded(self, keys: Iterable[int]) -> None:
        rows = self.rows()
        for key in list(keys):
            self.buffered.pop(key, None)
            self.partial.discard(key)
            if key in rows:
                self.base[key] = rows[key]
            else:
                self.base.pop(key, None)

    def note(self) -> None:
        """Remembers what the version that is the newest now has."""
        version = deltalake.DeltaTable(str(self.folder)).version()
        if version not in self.bases:
            self.bases[version] = ({key: dict(row) for key, row in self.base.items()}, set(self.types))

    # ---- what is there -------------------------------------------------------------------------------------------

    def in_delta(self) -> dict[int, Row]:
        return keyed(deltalake.DeltaTable(str(self.folder)).to_pyarrow_table())

    def check(self) -> None:
        use_index = self.random.random() < 0.7
        table = self.table if self.random.random() < 0.7 else lakemark.Table(self.folder)
        rows = self.rows()
        differ(keyed(table.scan(use_index=use_index).to_arrow()), rows, f"use_index={use_index}: {self.told()}")
        # Where an index includes these columns, rows that nobody changed come from there.
        names = ["id", *(name for name in INCLUDED if name in self.types)]
        expected = {key: {name: rows[key].get(name) for name in names} for key in sorted(rows)[::5]}
        found = table.lookup(list(expected), names, on="id", use_index=use_index).to_arrow()
        differ(keyed(found), expected, f"lookup, use_index={use_index}: {self.told()}")
        self.check_links(table, rows)

    def check_links(self, table: lakemark.Table, rows: dict[int, Row]) -> None:
        """Links from keys to `v`: those that the rows are, whichever of these are buffered, deleted or indexed."""
        walks = table.links("id", "v")
        links = {(key, row["v"]) for key, row in rows.items() if row.get("v") is not None}
        for near, far, walk in ((0, 1, walks.out), (1, 0, walks.into)):
            nodes = sorted({link[near] for link in links})[::7]
            expected = {(link[near], link[far]) for link in links if link[near] in nodes}
            found = walk(pa.array(nodes, pa.int64())).to_arrow()
            have = list(zip(found["from"].to_pylist(), found["node"].to_pylist(), strict=True))
            assert sorted(have) == sorted(expected), f"links {walk.__name__}: {self.told()}"
        start = min(rows, default=0)
        after = dict(links)
        way: list[int] = []
        node = after.get(start)
        while node is not None and node not in way:
            way.append(node)
            node = after.get(node)
        reached = walks.reach(start).to_arrow()["node"].to_pylist()
        assert reached == way, f"what {start} reaches: {self.told()}"

    def check_delta(self) -> None:
        differ(self.in_delta(), self.base, f"in Delta: {self.told()}")

    def check_apart(self) -> None:
        """By another process, with indexes and without."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", READER, str(self.folder)]
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        expected = sorted((key, sorted(row.items())) for key, row in self.rows().items())
        assert told.splitlines() == [str(expected)] * 2, self.told()

    def told(self) -> str:
        return "; ".join(self.trace[-20:])

    # ---- one step ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        ours: list[tuple[int, Callable[[], None]]] = [
            (20, self.upsert),
            (12, self.update),
            (10, self.delete),
            (6, self.insert),
            (5, self.sql_update),
            (6, self.flush),
            (5, self.migrate),
            (3, self.migrate_slice),
            (2, self.migrate_beside_an_append),
            (1, self.migrate_beside_a_fork),
            (2, self.vacuum),
            (2, self.index),
            (2, self.reopen),
        ]
        others: list[tuple[int, Callable[[], None]]] = [
            (6, self.delta_append), (1, self.delta_overwrite), (3, self.delta_delete), (3, self.delta_update),
            (4, self.delta_merge), (2, self.delta_compact), (1, self.delta_z_order), (1, self.delta_vacuum),
            (5, self.delta_restore), (2, self.delta_add_column), (1, self.delta_checkpoint), (1, self.delta_cleanup),
        ]  # fmt: skip
        left = [(weight, step) for weight, step in ours + others if step.__name__ not in self.without]
        weights, steps = zip(*left, strict=True)
        chosen = self.random.choices(steps, weights)[0]
        name = chosen.__name__
        self.trace.append(name)
        self.counts[name] = self.counts.get(name, 0) + 1
        chosen()
        if name.startswith("delta"):
            self.check_delta()
        if name.startswith("delta") or "migrate" in name or self.random.random() < 0.3:
            self.note()
            self.check()

    def some(self) -> list[int]:
        return sorted({self.random.randrange(self.keys) for _ in range(self.random.randint(1, 8))})

    # ---- ours ----------------------------------------------------------------------------------------------------

    def make(self, change: Callable[[], object]) -> bool:
        """Whether the cache had room for it."""
        try:
            change()
        except lakemark.exceptions.CacheFullError:
            self.migrate()
            return False
        return True

    def upsert(self) -> None:
        rows = {key: self.row(key) for key in self.some()}
        if self.make(lambda: self.table.upsert(self.table_of(rows.values()))):
            self.buffered |= rows
            self.partial -= rows.keys()

    def insert(self) -> None:
        have = self.rows()
        rows = {key: self.row(key) for key in self.some() if key not in have}
        if rows and self.make(lambda: self.table.insert(self.table_of(rows.values()))):
            self.buffered |= rows
            self.partial -= rows.keys()

    def update(self) -> None:
        names = [name for name in self.types if name != "id"]
        names = self.random.sample(names, self.random.randint(1, len(names)))
        rows = {key: {name: self.row(key)[name] for name in names} for key in self.some()}
        given = self.table_of([{"id": key} | row for key, row in rows.items()]).select(["id", *names])
        if self.make(lambda: self.table.update(given)):
            for key, row in rows.items():
                self.set(key, row)

    def set(self, key: int, row: Row) -> None:
        if key not in self.buffered:
            self.buffered[key] = row
            self.partial.add(key)
        elif (have := self.buffered[key]) is not None:
            self.buffered[key] = have | row

    def sql_update(self) -> None:
        bound = self.random.randrange(self.keys)
        session = lakemark.connect()
        session.register("t", self.table)
        if self.make(lambda: session.sql(f"UPDATE t SET v = v + 1 WHERE id < {bound} AND v > 500")):
            for key, row in self.rows().items():
                if key < bound and row["v"] is not None and row["v"] > 500:
                    self.set(key, {"v": row["v"] + 1})

    def delete(self) -> None:
        keys = self.some()
        if self.make(lambda: self.table.delete(keys)):
            self.buffered |= dict.fromkeys(keys)
            self.partial -= set(keys)

    def flush(self) -> None:
        self.make(self.table.flush)

    def migrate(self) -> None:
        self.table.migrate(max_bytes=self.random.choice([None, None, 2_000, 50_000]), progress=False)
        self.all_migrated()

    def all_migrated(self) -> None:
        self.folded(list(self.buffered))
        self.check_delta()

    def migrate_slice(self) -> None:
        """Which keys were folded is seen in the table; of those of which it is not, new rows are buffered."""
        before, after = self.base, self.rows()
        self.table.migrate(self.random.uniform(0.1, 0.9), progress=False)
        now = self.in_delta()
        moved = {key for key in self.buffered if before.get(key) != after.get(key)}
        folded = {key for key in moved if now.get(key) == after.get(key)}
        differ(
            {key: now[key] for key in now if key not in folded},
            {k: r for k, r in before.items() if k not in folded},
            self.told(),
        )
        stays = moved - folded
        last = max(folded, default=-1)
        assert last < min(stays, default=self.keys), "the lowest keys are folded first"
        open_keys = {key for key in self.buffered if key not in moved}
        self.folded({key for key in open_keys | folded if key <= last})
        open_keys = {key for key in open_keys if last < key < min(stays, default=self.keys)}
        rows = {key: self.row(key) for key in open_keys}
        if rows and self.make(lambda: self.table.upsert(self.table_of(rows.values()))):
            self.buffered |= rows
            self.partial -= rows.keys()
        self.note()

    def migrate_beside_an_append(self) -> None:
        """Somebody adds a key that nothing is buffered for, while files are written."""
        key = next(
            key for key in range(self.keys, self.keys + 10**6) if key not in self.base and key not in self.buffered
        )
        row, told = self.row(key), []

        def progress(_done: int, _total: int) -> None:
            while not told:
                # delta-rs takes a commit that removes files for a conflict, also with what only adds rows.
                with contextlib.suppress(CommitFailedError):
                    deltalake.write_deltalake(str(self.folder), self.table_of([row]), mode="append")
                    told.append(True)

        self.table.migrate(progress=progress)
        if told:
            self.base[key] = row
        self.all_migrated()

    def migrate_beside_a_fork(self) -> None:
        """A process that is forked while files are written lives longer than the migration, and blocks nobody."""
        if not self.buffered:
            return
        end, children = os.pipe(), []

        def progress(_done: int, _total: int) -> None:
            if not children:
                child = os.fork()
                if child == 0:
                    os.close(end[1])
                    os.read(end[0], 1)
                    os._exit(0)
                children.append(child)

        try:
            self.table.migrate(progress=progress)
            self.all_migrated()
            self.upsert()
            self.migrate()
        finally:
            os.close(end[1])
            os.close(end[0])
            for child in children:
                os.waitpid(child, 0)

    def vacuum(self) -> None:
        """As if all files were older than they are."""
        for path in (self.folder / "_lakemark").rglob("*"):
            if path.is_file():
                time = path.stat().st_mtime - 8 * 24 * 60 * 60
                os.utime(path, (time, time))
        self.table.vacuum(older_than=dt.timedelta(hours=1))

    def index(self) -> None:
        if not any(index.name == "by_v" for index in self.table.indexes):
            self.table.create_index("v", using="bitmap", name="by_v", progress=False)
        elif self.random.random() < 0.5:
            self.table.drop_index("by_v")
        else:
            self.table.build(progress=False)
        # Without dice: all else of a seed stays as it is.
        if not any(index.name == "rides" for index in self.table.indexes):
            include = [name for name in INCLUDED if name in self.types]
            self.table.create_index("id", using="key", include=include, name="rides", progress=False)
        if not any(index.name == "walks" for index in self.table.indexes):
            self.table.create_index(["id", "v"], using="links", name="walks", progress=False)

    def reopen(self) -> None:
        self.table = lakemark.Table(self.folder)

    # ---- others --------------------------------------------------------------------------------------------------

    def delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self.folder))

    def write(self, rows: dict[int, Row], mode: str) -> None:
        deltalake.write_deltalake(str(self.folder), self.table_of(rows.values()), mode=mode)

    def delta_append(self) -> None:
        """Keys that the data files do not have; they may be buffered."""
        rows = {key: self.row(key) for key in self.some() if key not in self.base}
        if rows:
            self.write(rows, "append")
            self.base |= rows

    def delta_overwrite(self) -> None:
        rows = {key: self.row(key) for key in range(self.keys) if self.random.random() < 0.7}
        self.write(rows, "overwrite")
        self.base = rows

    def delta_delete(self) -> None:
        first = self.random.randrange(self.keys)
        self.delta().delete(f"id >= {first} AND id < {first + 8}")
        self.base = {key: row for key, row in self.base.items() if not first <= key < first + 8}

    def delta_update(self) -> None:
        first = self.random.randrange(self.keys)
        self.delta().update(updates={"v": "v + 1000"}, predicate=f"id >= {first} AND id < {first + 8}")
        for key in range(first, first + 8):
            if key in self.base and self.base[key]["v"] is not None:
                self.base[key] = self.base[key] | {"v": self.base[key]["v"] + 1000}

    def delta_merge(self) -> None:
        rows = {key: self.row(key) for key in self.some()}
        merge = self.delta().merge(self.table_of(rows.values()), "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.base |= rows

    def delta_compact(self) -> None:
        self.delta().optimize.compact()

    def delta_z_order(self) -> None:
        self.delta().optimize.z_order(["v", "id"])

    def delta_vacuum(self) -> None:
        self.delta().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        self.oldest = self.delta().version()
        self.note()

    def delta_restore(self) -> None:
        newest = self.delta().version()
        versions = [
            version
            for version, (_, columns) in self.bases.items()
            if max(self.oldest, newest - 15) <= version < newest and columns <= self.types.keys()
        ]
        if not versions:
            return
        version = self.random.choice(versions)
        self.delta().restore(version)
        base, columns = self.bases[version]
        # Whether columns that were added since stay is delta-rs's choice.
        names = [field.name for field in self.delta().schema().fields]
        assert columns <= set(names), names
        for gone in self.types.keys() - set(names):
            del self.types[gone]
            for change in self.buffered.values():
                if change is not None:
                    change.pop(gone, None)
        self.base = {key: {name: row.get(name) for name in self.types} for key, row in base.items()}

    def delta_add_column(self) -> None:
        if len(self.types) >= 9:
            return
        kind = self.random.choice(list(ADDED))
        name = f"x{len(self.trace)}"
        self.delta().alter.add_columns([Field(name, PrimitiveType(kind))])
        self.types[name] = ADDED[kind]
        for row in self.base.values():
            row[name] = None
        for key, change in self.buffered.items():
            if change is not None and key not in self.partial:
                change[name] = None

    def delta_checkpoint(self) -> None:
        self.delta().create_checkpoint()

    def delta_cleanup(self) -> None:
        self.delta().create_checkpoint()
        self.delta().cleanup_metadata()


def keyed(table: pa.Table) -> dict[int, Row]:
    rows = {row["id"]: row for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "a key is there twice"
    return rows


def differ(have: dict[int, Row], want: dict[int, Row], told: str) -> None:
    keys = [key for key in sorted(have.keys() | want.keys()) if have.get(key) != want.get(key)]
    shown = [f"{key}: has {have.get(key)}, expected {want.get(key)}" for key in keys[:5]]
    assert not keys, "\n".join([told, f"{len(keys)} keys differ", *shown])

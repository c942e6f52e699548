"""Keeping index files: touched files are taken over, old index files are vacuumed, and coverage is what it says."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import lakemark
from test_command import command

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Judged

WEEK_AND_DAY = 8 * 24 * 60 * 60


def touch(path: Path) -> None:
    later = time.time_ns() + 10_000_000_000
    os.utime(path, ns=(later, later))


def make_old(store: Path) -> None:
    long_ago = time.time() - WEEK_AND_DAY
    for path in store.rglob("*"):
        if path.is_file():
            os.utime(path, (long_ago, long_ago))


def files(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}


def test_a_touched_file_keeps_its_indexes_and_the_next_build_takes_it_over(indexed: Judged) -> None:
    touch(indexed.folder / "part-2.parquet")
    session = lakemark.connect()
    session.register("t", indexed.table)
    shown = session.sql("SHOW INDEXES FROM t").to_arrow().to_pydict()
    assert shown["files_covered"] == [3, 3, 3]
    assert [index.coverage for index in indexed.table.indexes] == [0.75] * 3
    # Its indexes are of use all the same: hashes prove them.
    assert indexed.table.explain("city = 'Oslo'").coverage == 1.0
    expected = indexed.count("city = 'Oslo' AND id > 2000")
    assert indexed.table.count("city = 'Oslo' AND id > 2000") == expected
    indexes = files(indexed.folder / "_lakemark" / "indexes")
    report = indexed.table.build(progress=False)
    assert (report.adopted, report.files, report.segments) == (1, 0, 0)
    assert files(indexed.folder / "_lakemark" / "indexes") == indexes
    assert [index.coverage for index in indexed.table.indexes] == [1.0] * 3
    assert indexed.table.count("city = 'Oslo' AND id > 2000") == expected
    assert "took over 1 touched files" in str(report)


def test_the_command_tells_what_it_took_over(indexed: Judged) -> None:
    for part in range(4):
        touch(indexed.folder / f"part-{part}.parquet")
    done = command("index", "build", indexed.folder, "--quiet")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "took over 4 touched files: their bytes are those that were indexed",
    ), done.stderr


def test_a_copy_without_times_is_taken_over(indexed: Judged, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(indexed.folder, copy, copy_function=shutil.copyfile)
    table = lakemark.Table(copy)
    assert [index.files_covered for index in table.indexes] == [0, 0, 0]
    assert table.build(progress=False).adopted == 4
    assert [index.coverage for index in table.indexes] == [1.0, 1.0, 1.0]
    assert table.verify().ok


def test_a_vacuum_removes_what_is_old_and_unused(indexed: Judged) -> None:
    store = indexed.folder / "_lakemark"
    indexed.table.drop_index("by_day")
    orphan = store / "indexes" / "00000000-0000-4000-8000-000000000001.lmx"
    orphan.write_bytes(b"left by a crash")
    before = files(store)
    assert indexed.table.vacuum().removed == []
    make_old(store)
    dry = indexed.table.vacuum(dry_run=True)
    assert dry.dry_run
    assert files(store) == before
    assert str(dry).startswith("would remove: files 7, ")
    report = indexed.table.vacuum()
    assert (report.removed, report.bytes) == (dry.removed, dry.bytes)
    assert {waste.path for waste in report.removed} == before - files(store)
    assert (report.manifests_kept, report.segments_kept) == (1, 2)
    assert not orphan.exists()
    condition = "city = 'Oslo' AND id > 2000"
    assert indexed.table.count(condition) == indexed.count(condition)
    assert lakemark.Table(indexed.folder).explain(condition).coverage == 1.0
    assert indexed.table.vacuum().removed == []


def test_the_age_of_a_vacuum_is_at_least_an_hour(indexed: Judged) -> None:
    before = files(indexed.folder)
    make_old(indexed.folder / "_lakemark")
    for age in (timedelta(minutes=59), timedelta(0), timedelta(days=-1)):
        with pytest.raises(lakemark.InvalidInputError, match="at least 1h"):
            indexed.table.vacuum(older_than=age)
    assert indexed.table.vacuum(older_than=timedelta(days=30)).removed == []
    assert files(indexed.folder) == before
    done = command("vacuum", indexed.folder, "--older-than", "30m")
    assert done.returncode == 2
    done = command("vacuum", indexed.folder, "--older-than", "2w", "--dry-run")
    assert done.returncode == 0
    assert done.stdout.startswith("would remove: files 0, bytes 0 B, manifests kept 6, segments kept 3, ")
    done = command("vacuum", indexed.folder, "--older-than", "1h", "--format", "json")
    assert (done.returncode, len(json.loads(done.stdout)["removed"])) == (0, 5), done.stderr


def test_a_file_that_cannot_be_indexed_is_in_the_report_and_the_others_are_indexed(indexed: Judged) -> None:
    table, path = indexed.table, sorted(indexed.folder.glob("*.parquet"))[1]
    for index in table.indexes:
        table.drop_index(index.name)
    table.create_index("city", using="bitmap", name="again", build=False)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    left_out = "cannot be read and is left out"
    with (
        pytest.warns(lakemark.LakemarkWarning, match=left_out),
        pytest.raises(lakemark.LakemarkIOError, match="no more than 0 may fail"),
    ):
        table.build(progress=False, max_failures=0)
    with pytest.warns(lakemark.LakemarkWarning, match=left_out):
        report = table.build(progress=False, commit_every=0, max_failures=1)
    assert ([each.path for each in report.failed], report.files, report.segments) == ([path.name], 3, 1)
    assert f"failed: {path.name}: " in str(report)
    assert f"failed: {path.name}: " in report._repr_html_()
    path.write_bytes(whole)
    report = table.build(progress=False)
    assert (report.failed, report.files) == ([], 1)
    assert table.count("city = 'Oslo'") == indexed.count("city = 'Oslo'")
    with pytest.raises(lakemark.InvalidInputError, match="commit_every is -1"):
        table.build(progress=False, commit_every=-1)


def test_a_sample_of_the_segments_is_verified(indexed: Judged) -> None:
    segments = sum(index.segments for index in indexed.table.indexes)
    for share, compared in ((0.0, 0), (0.01, 1), (1.0, segments), (True, segments)):
        report = indexed.table.build(progress=False, verify=share)
        assert (report.verified, report.repaired) == (compared, 0)
    with pytest.raises(lakemark.InvalidInputError, match="verify is 2"):
        indexed.table.build(progress=False, verify=2)


def test_segments_that_are_gone_or_damaged_are_built_again(indexed: Judged) -> None:
    indexes = indexed.folder / "_lakemark" / "indexes"
    gone, damaged, *_ = sorted(indexes.iterdir())
    gone.unlink()
    data = bytearray(damaged.read_bytes())
    data[90] ^= 1
    damaged.write_bytes(data)
    session = lakemark.connect()
    session.register("t", indexed.table)
    shown = session.sql("SHOW INDEXES FROM t").to_arrow().to_pydict()
    assert sorted(shown["files_covered"]) == [0, 4, 4]
    assert sorted(index.coverage for index in indexed.table.indexes) == [0.0, 1.0, 1.0]
    with pytest.warns(lakemark.LakemarkWarning, match="missing or cut off"):
        report = indexed.table.build(progress=False)
    assert (report.repaired, report.segments, report.files) == (1, 1, 4)
    assert "1 segments were missing or damaged" in str(report)
    assert [index.coverage for index in indexed.table.indexes] == [1.0, 1.0, 1.0]
    assert not indexed.table.verify().ok
    told = command("index", "verify", indexed.folder)
    assert (told.returncode, "--verify` builds the damaged segments again" in told.stderr) == (1, True), told.stderr
    done = command("index", "build", indexed.folder, "--verify", "--quiet")
    assert (done.returncode, done.stdout.splitlines()[-1][:38]) == (0, "1 segments were missing or damaged: wh"), done
    assert indexed.table.build(progress=False, verify=True).repaired == 0
    assert indexed.table.verify().ok
    assert indexed.table.count("city = 'Oslo'") == indexed.count("city = 'Oslo'")

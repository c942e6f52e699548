"""Builds that run as a job of Spark's: CREATE INDEX and CALL lm.system.build."""

from __future__ import annotations

import json
import re
import sys
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
import lakemark.spark
from spark_tables import PATIENCE, ROWS_PER_FILE, add_file, wait_for, write_delta, write_folder
from test_catalog import refusal, rows
from test_examples import ROOT, run
from test_procedures import report

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession

# One value of each shape of condition, for columns whose indexes are compared.
FILTERS = [
    "k = 7",
    "k > 3 AND k <= 21",
    "k IS NULL",
    "NOT (k BETWEEN 2 AND 28)",
    "id IN (5, 1999, 2500, 9999)",
    "id < 1200",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "t", files=5)


def declare(folder: Path, *columns: str, **options: int) -> None:
    table = lakemark.Table(folder)
    for column in columns:
        table.create_index(column, using="bitmap", build=False, **options)


def build(spark: SparkSession, folder: Path, more: str = "") -> dict[str, object]:
    return report(spark.sql(f"CALL lm.system.build(table => '{folder}'{more})"))


def indexes(folder: Path) -> set[str]:
    return {path.name for path in (folder / "_lakemark" / "indexes").glob("*")}


def manifests(folder: Path) -> int:
    return len(list((folder / "_lakemark" / "manifest").glob("*.lmm")))


def damages(folder: Path) -> list[object]:
    return [damage for index in lakemark.Table(folder).verify().indexes for damage in index.damaged]


class Jobs:
    """The jobs of this session that ended since the object was made, by what Spark's own store of the UI knows."""

    def __init__(self, spark: SparkSession) -> None:
        self._store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - PySpark shows no descriptions
        self._known = {job.jobId() for job in self._all()}

    def _all(self) -> list[object]:
        listed = self._store.jobsList(None)
        return [listed.apply(at) for at in range(listed.size())]

    def new(self) -> list[object]:
        return sorted((job for job in self._all() if job.jobId() not in self._known), key=lambda job: job.jobId())


def test_a_build_is_one_job_with_a_task_for_each_segment(spark: SparkSession, folder: Path) -> None:
    declare(folder, "k", "id", files_per_segment=2)
    jobs = Jobs(spark)
    built = build(spark, folder)
    assert (built["indexes"], built["files"], built["segments"]) == (["id_bitmap", "k_bitmap"], 5, 6)
    assert (built["rows"], built["failed"], built["declined"], built["spilled"]) == (2 * 5 * ROWS_PER_FILE, [], [], 0)
    (job,) = jobs.new()
    assert job.numTasks() == 6
    assert job.description().get() == f"Lakemark: building the indexes of {folder}, 6 tasks"
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None
    again = build(spark, folder)
    assert (again["indexes"], again["segments"]) == ([], 0)
    assert len(jobs.new()) == 1, "where there is nothing to build there is no job"


def test_indexes_are_those_that_python_builds(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", files=5)
    for each in (folder, other):
        declare(each, "k", files_per_segment=2)
        lakemark.Table(each).create_index("id", using="key", build=False)
    build(spark, folder)
    lakemark.Table(other).build(progress=False)
    ours, theirs = lakemark.Table(folder), lakemark.Table(other)
    for condition in FILTERS:
        assert (
            ours.count(condition) == theirs.count(condition) == spark.read.parquet(str(other)).where(condition).count()
        )
    listed = [(i.name, i.kind, i.segments, i.files_covered, i.rows, i.bytes) for i in ours.indexes]
    assert listed == [(i.name, i.kind, i.segments, i.files_covered, i.rows, i.bytes) for i in theirs.indexes]
    assert damages(folder) == []
    assert [index.files_ok for index in ours.verify().indexes] == [5, 5]


def test_create_index_builds_by_a_job(spark: SparkSession, folder: Path) -> None:
    declare(folder, "id")
    jobs = Jobs(spark)
    spark.sql(f"CREATE INDEX by_k ON lm.`{folder}` USING bitmap (k) OPTIONS (files_per_segment = '1')")
    (job,) = jobs.new()
    assert job.numTasks() == 5
    assert job.description().get() == f"Lakemark: building by_k of {folder}, 5 tasks"
    covered = {index.name: index.files_covered for index in lakemark.Table(folder).indexes}
    assert covered == {"id_bitmap": 0, "by_k": 5}


def test_only_what_is_not_covered_is_read(spark: SparkSession, folder: Path) -> None:
    declare(folder, "k")
    assert build(spark, folder)["files"] == 5
    before = indexes(folder)
    add_file(folder, 5)
    add_file(folder, 6)
    later = build(spark, folder)
    assert (later["files"], later["rows"], later["segments"]) == (2, 2 * ROWS_PER_FILE, 1)
    assert before < indexes(folder)
    assert lakemark.Table(folder).indexes[0].coverage == 1.0


def test_partitions_and_delta_tables(spark: SparkSession, tmp_path: Path) -> None:
    delta, parts = tmp_path / "delta", tmp_path / "parts"
    write_delta(delta)
    for year in (2023, 2024):
        (parts / f"year={year}").mkdir(parents=True)
        table = pa.table({"kind": [f"k{n % 5}" for n in range(year - 1900)]})
        pq.write_table(table, parts / f"year={year}" / "a b%20c.parquet")
    for folder, rows_total, found in ((delta, 250, 20), (parts, 247, 24)):
        declare(folder, "kind", files_per_segment=1)
        built = build(spark, folder)
        assert (built["files"], built["segments"], built["rows"]) == (2, 2, rows_total)
        condition = "kind = 'k3' AND year = 2023"
        assert lakemark.Table(folder).explain(condition).rows_exact == found
        assert rows(spark, f"SELECT count(*) FROM lm.`{folder}` WHERE {condition}") == [(found,)]
        assert damages(folder) == []


def test_a_store_elsewhere(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    store, table = tmp_path / "store", f"`{tmp_path.name}`"
    spark.sql(f"CREATE TABLE lm.{table} USING lakemark OPTIONS (store = '{store}') LOCATION '{folder}'")
    spark.sql(f"CREATE INDEX by_k ON lm.{table} USING bitmap (k)")
    assert lakemark.Table(folder, store=store).indexes[0].coverage == 1.0
    assert not (folder / "_lakemark").exists()
    spark.sql(f"DROP TABLE lm.{table}")


def test_arguments_reach_the_tasks(spark: SparkSession, folder: Path) -> None:
    declare(folder, "k", "id")
    built = build(spark, folder, ", memory => 1, threads => 2, index => 'id_bitmap'")
    assert built["indexes"] == ["id_bitmap"]
    assert built["spilled"] == 5 * ROWS_PER_FILE // 100
    assert "there is no index nope" in refusal(spark, f"CALL lm.system.build(table => '{folder}', index => 'nope')")


def test_segments_that_are_gone_or_damaged_are_built_again(spark: SparkSession, folder: Path) -> None:
    declare(folder, "k", files_per_segment=2)
    assert build(spark, folder)["segments"] == 3
    gone, damaged, _ = sorted((folder / "_lakemark" / "indexes").glob("*"))
    gone.unlink()
    data = bytearray(damaged.read_bytes())
    data[90] ^= 1
    damaged.write_bytes(data)
    built = build(spark, folder)
    assert (built["repaired"], built["segments"]) == (1, 1)
    assert len(damages(folder)) == 1
    built = build(spark, folder, ", verify => 1.0")
    assert (built["verified"], built["repaired"], built["segments"]) == (3, 1, 1)
    assert damages(folder) == []
    again = lakemark.spark.build(spark, folder, verify=True, progress=False)
    assert (again.verified, again.repaired) == (3, 0)
    assert lakemark.spark.build(spark, folder, verify=0.01, progress=False).verified == 1


def corrupt(damaged: Path) -> None:
    """Writes over the pages of `k` in a row group."""
    content = bytearray(damaged.read_bytes())
    chunk = pq.read_metadata(damaged).row_group(3).column(1)
    assert chunk.path_in_schema == "k"
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    damaged.write_bytes(content)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_indexed(spark: SparkSession, folder: Path) -> None:
    declare(folder, "k", files_per_segment=2)
    corrupt(folder / "part-3.parquet")
    built = build(spark, folder, ", commit_every => 1")
    assert (built["files"], built["segments"]) == (4, 3)
    (failed,) = built["failed"]
    assert failed.startswith("part-3.parquet: ")
    assert "the column k of the data file part-3.parquet cannot be read" in failed
    assert damages(folder) == []
    told = lakemark.spark.build(spark, folder, progress=False)
    assert ([each.path for each in told.failed], told.segments) == (["part-3.parquet"], 0)


def test_more_failures_than_may_be_stop_the_build_and_what_is_finished_stays(spark: SparkSession, folder: Path) -> None:
    declare(folder, "k", files_per_segment=1)
    for part in (1, 3):
        corrupt(folder / f"part-{part}.parquet")
    told = refusal(spark, f"CALL lm.system.build(table => '{folder}', max_failures => 0)")
    assert "LakemarkException$Io" in told
    assert "cannot be indexed, and no more than 0 may fail" in told
    (index,) = lakemark.Table(folder).indexes
    assert index.files_covered == index.segments <= 3
    built = build(spark, folder, ", max_failures => 2")
    assert (built["files"], len(built["failed"])) == (3 - index.files_covered, 2)
    assert lakemark.Table(folder).indexes[0].files_covered == 3


def test_a_store_that_cannot_be_written_is_named(spark: SparkSession, folder: Path) -> None:
    declare(folder, "k")
    (folder / "_lakemark" / "indexes").write_text("a file where the folder of segments should be")
    told = refusal(spark, f"CALL lm.system.build(table => '{folder}')")
    assert "LakemarkException$Io" in told
    assert f"the store {folder}/_lakemark cannot be written" in told


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A table whose build takes long enough to be disturbed: four tasks for two cores."""
    folder = tmp_path / "large"
    folder.mkdir()
    many = pa.table({"k": pa.array(range(400_000), pa.int64())})
    for part in range(4):
        pq.write_table(many, folder / f"part-{part}.parquet", row_group_size=20_000)
    declare(folder, "k", files_per_segment=1)
    return folder


def test_a_file_that_is_replaced_during_the_build_is_left_out(spark: SparkSession, large: Path) -> None:
    other = large / "_other"
    pq.write_table(pa.table({"k": [1, 2, 3]}), other)
    told: list[dict[str, object]] = []
    caller = threading.Thread(target=lambda: told.append(build(spark, large)))
    caller.start()
    wait_for(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()))
    other.replace(large / "part-3.parquet")
    caller.join(PATIENCE)
    (built,) = told
    (failed,) = built["failed"]
    assert failed.startswith("part-3.parquet: it changed")
    assert (built["files"], built["segments"]) == (3, 3)
    assert lakemark.Table(large).count("k = 2") == 4
    assert build(spark, large)["rows"] == 3
    assert damages(large) == []


def test_a_job_that_is_cancelled_stops_its_tasks_and_commits_what_is_finished(spark: SparkSession, large: Path) -> None:
    jobs, told = Jobs(spark), []
    caller = threading.Thread(target=lambda: told.append(refusal(spark, f"CALL lm.system.build(table => '{large}')")))
    caller.start()
    wait_for(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()))
    spark.sparkContext.cancelAllJobs()
    caller.join(PATIENCE)
    assert len(told) == 1
    assert "cancelled" in told[0]
    (index,) = lakemark.Table(large).indexes
    assert index.files_covered == index.segments < 4
    assert [str(job.status()) for job in jobs.new()] == ["FAILED"]
    built = build(spark, large)
    # What a task had finished when it was given up is taken over.
    assert built["segments"] + built["taken_over"] == 4 - index.segments


def test_segments_are_committed_while_the_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    many = pa.table({"k": pa.array(range(400_000), pa.int64())})
    for part in range(12):
        pq.write_table(many, folder / f"part-{part:02}.parquet", row_group_size=20_000)
    declare(folder, "k", files_per_segment=1)
    before = manifests(folder)
    built = build(spark, folder, ", commit_every => 1, threads => 1")
    assert (built["files"], built["rows"], built["segments"]) == (12, 12 * 400_000, 12)
    # A machine that takes less than some seconds has no need of a commit but the last one.
    assert manifests(folder) - before >= (2 if built["seconds"] > 5 else 1)
    assert lakemark.Table(folder).count("k = 77") == 12
    assert damages(folder) == []


def test_python_gets_the_report_and_a_bar_of_the_tasks(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(folder, "k", "id", files_per_segment=2)
    built = lakemark.spark.build(spark, folder, 1 << 20, index="k_bitmap")
    assert (built.indexes, built.files, built.rows, built.segments) == (["k_bitmap"], 5, 5 * ROWS_PER_FILE, 3)
    assert (built.failed, built.declined, built.adopted, built.repaired, built.spilled) == ([], [], 0, 0, 0)
    assert re.fullmatch(r"build: 3 of 3 tasks in \d+\.\d s\n", capsys.readouterr().err)
    assert str(built).startswith(f"built k_bitmap: rows {5 * ROWS_PER_FILE:,}, files 5, segments 3, ")
    assert "<" in built._repr_html_()
    rest = lakemark.spark.build(spark, str(folder), progress=False)
    assert (rest.indexes, rest.segments) == (["id_bitmap"], 3)
    assert lakemark.spark.build(spark, folder).segments == 0
    assert capsys.readouterr().err == ""
    assert not spark.sparkContext.getJobTags()


def scheduled(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, ROOT / "examples" / "jobs" / "spark" / "scheduled_index_job.py", *arguments])


def test_the_scheduled_job_declares_builds_merges_and_goes_on_after_a_failure(folder: Path, tmp_path: Path) -> None:
    lakemark.Table(folder).create_index("id", using="key", build=False)
    add_file(folder, 5)
    wanted = ["--index", "k:bitmap", "--index", "id", "--index", "city", "--compact", "--vacuum", "7d"]
    done = scheduled(tmp_path / "absent", folder, *wanted)
    assert done.returncode == 1
    assert "absent: failed; what was finished is committed" in done.stderr
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert (told["table"], told["declared"]) == (str(folder), ["k_bitmap", "city_auto"])
    assert (told["build"]["files"], told["build"]["indexes"]) == (6, ["city_auto", "id_key", "k_bitmap"])
    assert told["compact"]["segments_merged"] == 0
    assert told["vacuum"] == {"files": 0, "bytes": 0}
    assert [index.coverage for index in lakemark.Table(folder).indexes] == [1.0, 1.0, 1.0]


def test_the_scheduled_job_explains_itself() -> None:
    told = scheduled("--help")
    assert told.returncode == 0
    for words in ("spark-submit", "*/15 * * * *", "SparkSubmitOperator", "Exit code: 0 all up to date", "--vacuum AGE"):
        assert words in told.stdout
    assert scheduled().returncode == 2

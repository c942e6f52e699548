"""The scheduled jobs under examples/jobs are run as they are, on tables of a test, by the real command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import lakemark
from test_examples import run

JOBS = Path(__file__).parents[2] / "examples" / "jobs"
UNITS = sorted((JOBS / "systemd").iterdir())


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The command `lakemark`, alone in a folder for the PATH."""
    path = tmp_path / "bin" / "lakemark"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m lakemark "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two tables with an index that is declared and not built."""
    for name in ("flights", "orders"):
        folder = tmp_path / "lake" / name
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"k": [1, 2, 2]}), folder / "a.parquet")
        lakemark.Table(folder).create_index("k", using="bitmap", build=False)
    return tmp_path / "lake"


def coverage(table: Path) -> float:
    return lakemark.Table(table).indexes[0].coverage


def scheduled_build(command: Path, tmp_path: Path, *tables: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    script = JOBS / "scheduled_build.sh"
    return run([script, *tables], LAKEMARK=str(command), LAKEMARK_BUILD_LOCK=str(tmp_path / "lock"), **variables)


def test_scheduled_build_covers_new_files_and_reports_failures(command: Path, lake: Path, tmp_path: Path) -> None:
    folder = lake / "flights"
    assert scheduled_build(command, tmp_path, folder).returncode == 0
    assert coverage(folder) == 1.0
    pq.write_table(pa.table({"k": [2]}), folder / "b.parquet")
    done = scheduled_build(command, tmp_path, tmp_path / "missing", folder)
    assert done.returncode == 1
    assert "the build failed" in done.stderr
    assert lakemark.Table(folder).indexes[0].files_covered == 2
    assert lakemark.Table(folder).count("k = 2") == 3


def test_scheduled_build_without_tables_is_wrong_usage(command: Path, tmp_path: Path) -> None:
    done = scheduled_build(command, tmp_path)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_scheduled_build_writes_metrics_of_each_table_into_the_folder_of_the_collector(
    command: Path, lake: Path, tmp_path: Path
) -> None:
    collected = tmp_path / "collected"
    collected.mkdir()
    tables = [lake / "flights", lake / "orders"]
    done = scheduled_build(command, tmp_path, *tables, LAKEMARK_METRICS=str(collected))
    assert done.returncode == 0, done.stderr
    files = sorted(collected.iterdir())
    assert [file.suffix for file in files] == [".prom", ".prom"]
    texts = [file.read_text("utf-8") for file in files]
    for table in tables:
        (text,) = [text for text in texts if f'lakemark_indexed_files_total{{table="{table}"}} 1\n' in text]
        assert f'lakemark_coverage_ratio{{table="{table}",index="k_bitmap"}} 1\n' in text


def test_a_scheduled_build_that_finds_another_one_waits_for_its_next_turn(
    command: Path, lake: Path, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    flock = shutil.which("flock")
    assert flock is not None
    with subprocess.Popen([flock, str(lock), "sh", "-c", "echo held; cat"], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        done = scheduled_build(command, tmp_path, lake / "flights")
        holder.stdin.close()
    assert (done.returncode, coverage(lake / "flights")) == (0, 0.0)
    assert "another build is running" in done.stderr


def cron_commands() -> list[str]:
    """What the crontab runs, without times and users."""
    lines = [line for line in (JOBS / "crontab").read_text("utf-8").splitlines() if re.match(r"[\d*]", line)]
    fields = [re.fullmatch(r"((?:\S+\s+){5})(\S+)\s+(.*)", line) for line in lines]
    assert all(fields)
    for found in fields:
        assert found is not None
        for time in found.group(1).split():
            assert re.fullmatch(r"\*(/\d+)?|\d+", time)
    return [found.group(3) for found in fields if found is not None]


@pytest.mark.parametrize("line", range(3))
def test_a_line_of_the_crontab_does_what_it_says(line: int, command: Path, lake: Path, tmp_path: Path) -> None:
    commands = cron_commands()
    assert len(commands) == 3
    lakemark.Table(lake / "flights").build(progress=False)
    pq.write_table(pa.table({"k": [2]}), lake / "flights" / "b.parquet")
    if "build" not in commands[line]:
        lakemark.Table(lake / "flights").build(progress=False)
    before = lakemark.Table(lake / "flights").indexes[0].segments
    places = {"/data/lake": lake, "/opt/lakemark": JOBS, "/var/log/lakemark": tmp_path}
    text = commands[line]
    for place, here in places.items():
        text = text.replace(place, str(here))
    path = f"{command.parent}:/usr/bin:/bin"
    done = run(["/bin/sh", "-c", text], PATH=path, LAKEMARK_BUILD_LOCK=str(tmp_path / "lock"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    index = lakemark.Table(lake / "flights").indexes[0]
    assert index.coverage == 1.0
    assert (before, index.segments) == ((2, 1) if "compact" in text else (1, 2))


def unit(path: Path) -> dict[str, list[str]]:
    """The settings of a unit of systemd, by their names."""
    settings: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def test_systemd_takes_the_units_as_they_are(tmp_path: Path) -> None:
    assert [path.name for path in UNITS] == [
        "lakemark-build@.service",
        "lakemark-build@.timer",
        "lakemark-watch.service",
    ]
    verifier = shutil.which("systemd-analyze")
    for path in UNITS:
        settings = unit(path)
        if path.suffix == ".timer":
            assert settings["WantedBy"] == ["timers.target"]
            continue
        (start,) = settings["ExecStart"]
        assert start.startswith("/usr/local/bin/lakemark index ")
        # The command is not installed where the tests run.
        (tmp_path / path.name).write_text(path.read_text("utf-8").replace("/usr/local/bin/lakemark", "/bin/true"))
    if verifier is not None:
        for path in UNITS:
            if path.suffix == ".timer":
                shutil.copy(path, tmp_path)
        names = [str(tmp_path / path.name) for path in UNITS]
        done = run([verifier, "verify", "--man=no", "--recursive-errors=no", *names])
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def started(unit_name: str, command: Path, lake: Path, tmp_path: Path) -> list[str]:
    """The words of ExecStart for the table of flights, with places of the test."""
    (start,) = unit(JOBS / "systemd" / unit_name)["ExecStart"]
    words = shlex.split(start)
    places = {
        "/usr/local/bin/lakemark": str(command),
        "/var/lib/prometheus/node-exporter": str(tmp_path),
        "/data/lake": str(lake),
        "%f": str(lake / "flights"),
        "%i": "data-lake-flights",
    }
    for place, here in places.items():
        words = [word.replace(place, here) for word in words]
    return words


def test_the_service_of_a_timer_builds_and_leaves_metrics(command: Path, lake: Path, tmp_path: Path) -> None:
    done = run([*started("lakemark-build@.service", command, lake, tmp_path)])
    assert done.returncode == 0, done.stderr
    assert coverage(lake / "flights") == 1.0
    assert "built k_bitmap" in done.stdout
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["done"]
    assert "lakemark_lag_seconds" in (tmp_path / "lakemark-data-lake-flights.prom").read_text("utf-8")


def once(words: list[str]) -> list[str]:
    """The same watch, which looks once and listens on a port that is free."""
    return [re.sub(r"\b9464$", "0", word) for word in words] + ["--once"]


def test_the_service_of_a_watch_covers_its_tables(command: Path, lake: Path, tmp_path: Path) -> None:
    words = started("lakemark-watch.service", command, lake, tmp_path)
    assert words[-2:] == [str(lake / "flights"), str(lake / "orders")]
    done = run([*once(words)])
    assert done.returncode == 0, done.stderr
    assert [coverage(lake / name) for name in ("flights", "orders")] == [1.0, 1.0]


def container(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod that a manifest for Kubernetes makes, and its only container."""
    manifest = yaml.safe_load((JOBS / "kubernetes" / name).read_text("utf-8"))
    spec = manifest["spec"]
    pod = (spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec)["template"]["spec"]
    (only,) = pod["containers"]
    return pod, only


def test_the_cron_job_forbids_two_runs_at_once_and_ends() -> None:
    manifest = yaml.safe_load((JOBS / "kubernetes" / "cronjob.yaml").read_text("utf-8"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "CronJob")
    spec = manifest["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("*/15 * * * *", "Forbid")
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0
    assert container("cronjob.yaml")[0]["restartPolicy"] == "Never"


def test_the_deployment_selects_its_own_pods_and_shows_the_port_that_it_listens_on() -> None:
    manifest = yaml.safe_load((JOBS / "kubernetes" / "watch.yaml").read_text("utf-8"))
    assert (manifest["apiVersion"], manifest["kind"], manifest["spec"]["replicas"]) == ("apps/v1", "Deployment", 1)
    template = manifest["spec"]["template"]["metadata"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= template["labels"].items()
    port = template["annotations"]["prometheus.io/port"]
    only = container("watch.yaml")[1]
    assert [str(each["containerPort"]) for each in only["ports"]] == [port]
    assert f"--metrics-port=0.0.0.0:{port}" in only["args"]


@pytest.mark.parametrize("name", ["cronjob.yaml", "watch.yaml"])
def test_containers_run_as_nobody_of_importance_with_room_for_unfinished_files(name: str) -> None:
    pod, only = container(name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert only["securityContext"]["readOnlyRootFilesystem"] is True
    (mount,) = only["volumeMounts"]
    (volume,) = pod["volumes"]
    assert mount == {"name": volume["name"], "mountPath": "/tmp"}  # noqa: S108 - in the container
    assert only["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", ["cronjob.yaml", "watch.yaml"])
def test_the_arguments_of_containers_are_those_of_the_command(name: str, command: Path, lake: Path) -> None:
    words = [word.replace("s3://lake", str(lake)) for word in container(name)[1]["args"]]
    if "watch" in words:
        words = once(words)
    done = run([command, *words])
    assert done.returncode == 0, done.stderr
    assert coverage(lake / "flights") == 1.0


def test_the_image_has_the_command_as_its_entry_and_the_user_of_the_manifests() -> None:
    lines = (JOBS / "kubernetes" / "Containerfile").read_text("utf-8").splitlines()
    steps = dict(line.split(" ", 1) for line in lines if re.match(r"[A-Z]+ ", line))
    assert json.loads(steps["ENTRYPOINT"]) == ["lakemark"]
    assert re.fullmatch(r"\S+/python:3\.\d+-slim", steps["FROM"])
    for name in ("cronjob.yaml", "watch.yaml"):
        assert steps["USER"] == str(container(name)[0]["securityContext"]["runAsUser"])
        version = steps["ARG"].removeprefix("LAKEMARK_VERSION=")
        assert container(name)[1]["image"].endswith(f"/lakemark:{version}")
        assert lakemark.__version__.startswith(version)


def test_rules_of_alerts_are_rules() -> None:
    (group,) = yaml.safe_load((JOBS / "prometheus-rules.yaml").read_text("utf-8"))["groups"]
    assert len(group["rules"]) >= 5
    for rule in group["rules"]:
        assert rule["alert"].startswith("Lakemark")
        assert "lakemark_" in rule["expr"]
        assert rule["annotations"]["summary"]


def test_scripts_can_be_run() -> None:
    assert os.access(JOBS / "scheduled_build.sh", os.X_OK)

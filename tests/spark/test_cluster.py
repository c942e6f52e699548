"""Two executors, of which one is stopped for a while or killed: builds, changes and reads are right all the same."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from test_examples import run

Seen = dict[str, Any]
FAULTS = ("stopped", "killed")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("cluster")
    done = run([sys.executable, Path(__file__).with_name("faults_on_a_cluster.py"), folder])
    assert done.returncode == 0, done.stderr + (folder / "cluster.log").read_text("utf-8")[-5000:]
    found: Seen = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(autouse=True)
def no_leak() -> None:
    """The session of the other tests has no part in it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_build(seen: Seen, fault: str) -> None:
    built = seen[fault]["build"]
    assert built["built"] == {"files": 8, "segments": 8, "failed": []}
    assert built["state"] == {"covered": 8, "segments": 8, "damaged": []}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_insert_and_a_merge_are_made_once(seen: Seen, fault: str) -> None:
    changed = seen[fault]["change"]
    assert (changed["inserted"], changed["merged"], changed["sequence"]) == (True, True, 2)
    # Attempts that went on after the statement had ended change nothing, and what they left goes.
    assert seen["settled"][fault] == {"sequence": 2, "rows": 200 + 1000, "kept": True, "staged": []}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_read(seen: Seen, fault: str) -> None:
    read = seen[fault]["read"]
    assert (read["right"], read["rows"]) == (True, 1998)


@pytest.mark.parametrize("fault", FAULTS)
def test_executors_were_struck_while_jobs_ran(seen: Seen, fault: str) -> None:
    struck = seen[fault]
    # Not in each job: a short one may have ended first.
    assert sum([struck["build"]["struck"], *struck["change"]["struck"], struck["read"]["struck"]]) >= 1


def test_tasks_of_an_executor_that_was_stopped_ran_twice(seen: Seen) -> None:
    stopped = seen["stopped"]
    if not any([stopped["build"]["twins"], *stopped["change"]["twins"], stopped["read"]["twins"]]):
        pytest.skip("the executor was between two tasks whenever it was stopped")
    assert seen["settled"]["stopped"]["staged"] == []


def test_a_store_that_executors_do_not_see_is_named(seen: Seen) -> None:
    told = seen["apart"]
    assert re.search(
        r"LakemarkException\$NotFound: executor \d+ on .*: the store /proc/self/cwd/store lacks the manifest",
        told["building"],
    )
    assert "all processes that build must see the same store" in told["building"]
    assert re.search(
        r"executor \d.*LakemarkException\$NotFound: there is no /proc/self/cwd/updates/updates on this machine",
        told["writing"],
    )
    assert told["count"] == 2000
    assert re.search(
        r"executor \d.*LakemarkException\$NotFound: .*proc/self/cwd/updates/updates/.*\.lmr is not there",
        told["reading"],
    )
    assert "on a disk that this executor does not see" in told["reading"]


def test_an_executor_that_read_a_table_before_its_store_was_made_sees_what_is_buffered_later(seen: Seen) -> None:
    assert seen["later"] == {"before": 200, "after": 203}

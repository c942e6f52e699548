"""Keeps the indexes of tables up to date with Airflow: builds every quarter of an hour, upkeep once a day.

The command `lakemark` has to be in the workers' PATH (`pip install lakemark`). Retries are safe: a build covers what no
index covers yet, and one that fails leaves what it had committed. The tables are in the Airflow variable
`lakemark_tables`, one in a line; credentials of object stores come from the workers' environment.

On a Spark cluster the task is a SparkSubmitOperator: see `spark/scheduled_index_job.py`.
"""

from __future__ import annotations

import datetime as dt
import shlex

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Variable, task

DEFAULTS = {
    "retries": 3,
    "retry_delay": dt.timedelta(minutes=5),
    "retry_exponential_backoff": True,
    # A build that hangs on storage is stopped, and tried again.
    "execution_timeout": dt.timedelta(hours=6),
}


@task
def commands(verb: str) -> list[str]:
    """A command for each table."""
    tables = [line.strip() for line in Variable.get("lakemark_tables").splitlines()]
    return [f"lakemark {verb} {shlex.quote(table)}" for table in tables if table]


with DAG(
    dag_id="lakemark_build",
    description="Index what is new in the lake",
    schedule=dt.timedelta(minutes=15),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    tags=["lakemark"],
) as build:
    BashOperator.partial(task_id="build", max_active_tis_per_dag=2).expand(
        bash_command=commands("index build --quiet --log-format json")
    )

with DAG(
    dag_id="lakemark_upkeep",
    description="Merge small segments and remove old files of the lake's indexes",
    schedule="30 2 * * *",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    tags=["lakemark"],
) as upkeep:
    compact = BashOperator.partial(task_id="compact", max_active_tis_per_dag=1).expand(
        bash_command=commands.override(task_id="compactions")("index compact --quiet --log-format json")
    )
    vacuum = BashOperator.partial(task_id="vacuum", max_active_tis_per_dag=1).expand(
        bash_command=commands.override(task_id="vacuums")("vacuum")
    )
    compact >> vacuum

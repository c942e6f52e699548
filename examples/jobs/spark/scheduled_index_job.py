r"""Keeps the indexes of tables up to date with a Spark cluster: a complete job for spark-submit, cron or Airflow.

For each table it declares the indexes that are missing and builds what no index file covers yet (one task for each
group of files, commits as tasks end). On request it merges small segments and removes old files. A run that finds
nothing to do starts no job. Two runs at once do no harm, and after a run that fails or is killed the next one goes on
from its last commit.

spark-submit::

    spark-submit --master yarn --deploy-mode cluster --jars lakemark-spark.jar \
        scheduled_index_job.py s3a://lake/flights --index dest --index tailnum:key --compact

cron, every quarter of an hour on one machine (`pip install "lakemark[spark]"` brings the jar)::

    */15 * * * *  /opt/venv/bin/python /opt/jobs/scheduled_index_job.py /data/lake/flights --index dest

Airflow, with the provider `apache-airflow-providers-apache-spark`; retries are safe::

    SparkSubmitOperator(
        task_id="lakemark_indexes",
        application="/opt/jobs/scheduled_index_job.py",
        application_args=["/data/lake/flights", "--index", "dest", "--compact", "--vacuum", "7d"],
        retries=2,
    )

For each table one line of JSON goes to stdout: what was declared, the report of the build, what was merged and removed.
Exit code: 0 all up to date, 1 a table failed (the others were still done), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import lakemark
import lakemark.spark

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("scheduled_index_job")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments; wrong ones end the program with exit code 2."""
    usage, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", metavar="TABLE", help="folder or URL of Parquet files or a Delta table")
    parser.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="COLUMN[:KIND]",
        help="an index that each table is to have; the kind is bitmap, key, bloom_tree or summary, by default chosen "
        "from a sample. Without the option only indexes that exist are built",
    )
    parser.add_argument("--memory", type=int, metavar="BYTES", help="what a task may hold before it spills to disk")
    parser.add_argument("--compact", action="store_true", help="merge the small segments of many builds")
    parser.add_argument("--vacuum", metavar="AGE", help="remove files that nobody has needed for so long: 12h, 7d, 4w")
    parser.add_argument("--catalog", default="lm", help="name of the catalog in the session (default: lm)")
    return parser.parse_args(arguments)


def connect(catalog: str) -> SparkSession:
    """A session with the connector: from the package, or as spark-submit's --jars gave it."""
    builder = SparkSession.builder.appName("lakemark-indexes")
    try:
        builder = lakemark.spark.configure(builder, catalog=catalog)
    except lakemark.NotFoundError:
        builder = builder.config(f"spark.sql.catalog.{catalog}", "io.lakemark.spark.LakemarkCatalog")
    return builder.getOrCreate()


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def declare(spark: SparkSession, table: str, wanted: Sequence[str], catalog: str) -> list[str]:
    """Declares the indexes that are missing, and gives their names. They are filled by the build, all in one job."""
    named = f"{quoted(catalog)}.{quoted(table + '$indexes')}"
    there = {row["column"] for row in spark.sql(f"SELECT column FROM {named}").collect()}
    declared = []
    for column, _, kind in (each.partition(":") for each in wanted):
        if column in there:
            continue
        name = f"{column.replace('.', '_')}_{kind or 'auto'}"
        path = ".".join(quoted(part) for part in column.split("."))
        using = f"USING {quoted(kind)} " if kind else ""
        spark.sql(
            f"CREATE INDEX IF NOT EXISTS {quoted(name)} ON {quoted(catalog)}.{quoted(table)} {using}({path}) "
            "OPTIONS (build = 'false')"
        )
        declared.append(name)
    return declared


def keep(spark: SparkSession, table: str, options: argparse.Namespace) -> dict[str, object]:
    """Brings one table up to date, and says what was done."""
    done: dict[str, object] = {"table": table}
    done["declared"] = declare(spark, table, options.index, options.catalog)
    report = lakemark.spark.build(spark, table, options.memory, catalog=options.catalog, progress=sys.stderr.isatty())
    log.info("%s: %s", table, report)
    for finding in report.failed:
        log.warning("%s: %s could not be indexed: %s", table, finding.path, finding.problem)
    for finding in report.declined:
        log.warning("%s: %s is left to scans: %s", table, finding.path, finding.problem)
    done["build"] = asdict(report)
    system = f"{quoted(options.catalog)}.system"
    if options.compact:
        (row,) = spark.sql(f"CALL {system}.compact(table => :table)", args={"table": table}).collect()
        done["compact"] = row.asDict()
    if options.vacuum:
        removed = spark.sql(
            f"CALL {system}.vacuum(table => :table, older_than => :age)", args={"table": table, "age": options.vacuum}
        ).collect()
        done["vacuum"] = {"files": len(removed), "bytes": sum(row["bytes"] for row in removed)}
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Brings all tables up to date; one that fails does not keep the others from it."""
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    spark = connect(options.catalog)
    try:
        done = [attempt(spark, table, options) for table in options.tables]
    finally:
        spark.stop()
    return 0 if all(done) else 1


def attempt(spark: SparkSession, table: str, options: argparse.Namespace) -> bool:
    """Prints what was done with a table; says whether that went well."""
    try:
        print(json.dumps(keep(spark, table, options)), flush=True)
    except Exception:
        log.exception("%s: failed; what was finished is committed", table)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())

"""Spark: where the connector's jar is, a session builder set up to use it, builds as jobs, and what a query reads.

Example:
    Build a session and read an indexed table with it::

        from pyspark.sql import SparkSession
        import lakemark.spark

        spark = lakemark.spark.configure(SparkSession.builder.master("local[2]")).getOrCreate()
        spark.read.format("lakemark").load("flights").filter("origin = 'JFK'").count()
        spark.sql("CREATE INDEX by_origin ON lm.`/data/flights` USING bitmap (origin)")
        lakemark.spark.build(spark, "/data/flights")  # later, what came since
        print(lakemark.spark.explain(spark.sql("SELECT * FROM lm.`/data/flights` WHERE origin = 'JFK'")))
"""

from __future__ import annotations

import json
import threading
import uuid
import zipfile
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lakemark._internal import describe_build
from lakemark._internal import version as _release
from lakemark._progress import ProgressBar
from lakemark.exceptions import NotFoundError, UnsupportedError
from lakemark.reports import BuildReport
from lakemark.spark_report import SparkExplainReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Protocol

    from pyspark import SparkContext
    from pyspark.core.status import SparkStageInfo
    from pyspark.sql import DataFrame, SparkSession

    class SessionBuilder(Protocol):
        """What `configure` needs of `SparkSession.builder`."""

        def config(self, key: str, value: str) -> SessionBuilder:
            """Sets one configuration entry and returns the builder."""


__all__ = ["build", "configure", "explain", "jar_path"]

_Builder = TypeVar("_Builder", bound="SessionBuilder")

_JAR_NAME = "lakemark-spark"
_JAR = f"{_JAR_NAME}.jar"
# The module of the package of that name.
_JAR_PACKAGE = "lakemark_spark"
_EXTENSION = "io.lakemark.spark.extension.LakemarkExtension"

# How often a bar looks at the job that it is about.
_LOOK_SECONDS = 0.2


def jar_path() -> Path:
    """Returns the path of the Spark connector: the jar of the package `lakemark-spark`, or what a checkout has built.

    Raises:
        NotFoundError: There is none.
    """
    built = Path(str(files("lakemark") / "jars" / _JAR))
    if built.is_file():
        return built
    installed: Path | None
    try:
        installed = Path(str(files(_JAR_PACKAGE) / _JAR))
    except ModuleNotFoundError:
        installed = None
    if installed is None or not installed.is_file():
        raise NotFoundError(
            "there is no Spark connector: its jar is a package of its own. "
            f'Run `pip install "{_JAR_NAME}=={_release()}"`, name a jar in `spark.jars`, '
            "or build it (`make jar` in a checkout does)."
        )
    return installed


def configure(
    builder: _Builder,
    *,
    catalog: str = "lm",
    warehouse: str | Path | None = None,
    tables: Mapping[str, str | Path] | None = None,
    accelerate: bool = False,
) -> _Builder:
    """Adds the connector to a session builder: `spark.read.format("lakemark")` works in the session it makes, and SQL.

    Jars and extensions that the builder already names are kept. If a jar is the connector, it is taken and not the one
    of `jar_path`.

    Args:
        builder: `SparkSession.builder`, with whatever else you have set on it.
        catalog: The catalog's name in SQL: tables are ``lm.`/data/flights` `` by their paths.
        warehouse: A folder or URL below which folders are tables (`lm.flights`) and namespaces (`lm.air.flights`), and
            where `CREATE TABLE` remembers names.
        tables: Names in the catalog for paths elsewhere.
        accelerate: Whether Spark's own scans of Parquet files, by `spark.read.parquet` or as tables of Spark's catalog,
            use the indexes beside the files. They see the files alone: no buffered changes. Queries of Delta tables by
            their own names use indexes, too, and see buffered changes or are refused.

    Returns:
        The same builder.

    Raises:
        NotFoundError: There is no jar; the message says what to install.
        UnsupportedError: The connector is of another release than this package.
    """
    jars = _listed(builder, "spark.jars")
    named = [jar for jar in jars if Path(jar).name.startswith(_JAR_NAME)]
    if not named:
        named = [str(jar_path())]
        jars += named
    for jar in named:
        _check_release(_release_of(jar), jar)
    builder.config("spark.jars", ",".join(jars))
    if accelerate:
        extensions = [entry for entry in _listed(builder, "spark.sql.extensions") if entry != _EXTENSION]
        builder.config("spark.sql.extensions", ",".join([*extensions, _EXTENSION]))
    prefix = f"spark.sql.catalog.{catalog}"
    builder.config(prefix, "io.lakemark.spark.LakemarkCatalog")
    if warehouse is not None:
        builder.config(f"{prefix}.warehouse", str(warehouse))
    for name, path in (tables or {}).items():
        builder.config(f"{prefix}.tables.{name}", str(path))
    return builder


def build(
    spark: SparkSession,
    table: str | Path,
    memory: int | None = None,
    threads: int | None = None,
    progress: bool = True,
    *,
    index: str | None = None,
    verify: float = 0.0,
    commit_every: int = 30,
    max_failures: int | None = None,
    merge: bool = False,
    catalog: str = "lm",
) -> BuildReport:
    """Builds whatever the indexes of a table do not cover yet, as a job of Spark's: one task for each group of files.

    Tasks write segments, the driver commits them as tasks end. Ctrl-C stops the job: what is finished is committed, and
    another build goes on with the rest. A data file that cannot be read is left out: `failed` of the report has it with
    the reason.

    Args:
        spark: A session with the connector: see `configure`.
        table: A name in the catalog, or a path.
        memory: Bytes that a task may keep in memory before it writes parts to disk; by default its share of a quarter
            of the executor's memory.
        threads: Threads of a task; `spark.task.cpus` by default.
        progress: Whether to draw a bar of the tasks on stderr.
        index: The only index to build.
        verify: How large a share of the segments is compared with the data first, on the driver, so that damaged ones
            are built again, and not only missing ones. 1 (or True) is all of them; less is another sample every day.
        commit_every: Seconds that finished segments wait for a commit, 1 or more.
        max_failures: How many data files may fail. One more stops the build, with an error, once what is finished is
            committed. By default it goes on.
        merge: Whether segments of an index are merged afterwards if they are too many for their sizes. The driver does
            that alone.
        catalog: The catalog's name in this session.

    Returns:
        What was done.

    Raises:
        UnsupportedError: The session's connector is of another release than this package.
    """
    _check_session(spark)
    given = {
        "table": str(table),
        "index": index,
        "memory": memory,
        "threads": threads,
        "verify": float(verify) or None,
        "commit_every": commit_every,
        "max_failures": max_failures,
        "merge": merge or None,
    }
    arguments = {name: value for name, value in given.items() if value is not None}
    named = ", ".join(f"{name} => :{name}" for name in arguments)
    with _bar(spark) if progress else nullcontext():
        (row,) = spark.sql(f"CALL `{catalog}`.system.build({named})", args=arguments).collect()
    values = row.asDict()
    for findings in ("failed", "declined", "false_statistics"):
        values[findings] = [
            dict(zip(("path", "problem"), text.split(": ", 1), strict=True)) for text in values[findings]
        ]
    return BuildReport.from_json(*describe_build(json.dumps(values)))


def explain(frame: DataFrame) -> SparkExplainReport:
    """Says which files and row groups of indexed tables a query reads, and why: which index answered which condition.

    The query is planned, for which indexes are read, and not run. The keys that joins give each other while they run
    are not known then. Of a frame that was run with an action of its own (`frame.collect()`), the report says what was
    read.

    Args:
        frame: Any data frame of a session with the connector: see `configure`.

    Returns:
        A report that draws itself, as text by `print` and as pictures in a notebook. Without a scan of ours it says so.

    Raises:
        UnsupportedError: The session is one of Spark Connect, which shows no plans, or has no connector.
    """
    query = getattr(frame, "_jdf", None)
    if query is None:
        raise UnsupportedError(
            "plans can be looked at in sessions that run in this process; over Spark Connect use frame.explain(), "
            "where each BatchScan says what it reads"
        )
    _check_session(frame.sparkSession)
    java: Any = frame.sparkSession._jvm  # noqa: SLF001 - PySpark shows no plans
    return SparkExplainReport.from_json(java.io.lakemark.spark.LakemarkExplain.of(query.queryExecution()))


def _check_session(spark: SparkSession) -> None:
    """Refuses a session whose connector is of another release, or that has none."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to the JVM
    try:
        release = jvm.io.lakemark.spark.LakemarkVersion.get()
    except TypeError:  # a name that no class has
        raise UnsupportedError(
            "this session has no connector of Lakemark, or one from before releases were compared: "
            "make the session with lakemark.spark.configure"
        ) from None
    _check_release(release, "this session")


def _check_release(release: str | None, of: str) -> None:
    """Refuses a connector of another release: what one side requests, the other may not know."""
    if release not in (None, _release()):
        raise UnsupportedError(
            f"{of} has the connector of lakemark {release} and this Python package is lakemark {_release()}: use the "
            f"same release of both; the package's own jar is lakemark.spark.jar_path()"
        )


def _release_of(jar: str) -> str | None:
    """The release that a jar says it is; none if it is elsewhere or does not say."""
    path = Path(jar.removeprefix("file://").removeprefix("file:"))
    if not path.is_file() or not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        manifest = "META-INF/MANIFEST.MF"
        lines = archive.read(manifest).decode("utf-8").splitlines() if manifest in archive.namelist() else []
    entries = dict(line.split(": ", 1) for line in lines if ": " in line)
    return entries.get("Implementation-Version")


@contextmanager
def _bar(spark: SparkSession) -> Iterator[None]:
    """Draws the tasks of the jobs that the body starts."""
    context, tag, done = spark.sparkContext, f"lakemark-{uuid.uuid4()}", threading.Event()
    tracker = context._jsc.sc().statusTracker()  # noqa: SLF001 - PySpark's own tracker knows no tags
    with ProgressBar("build", unit="tasks") as bar:

        def look() -> None:
            stages = [stage for job in tracker.getJobIdsForTag(tag) for stage in _stages(context, job)]
            bar(sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages))

        def watch() -> None:
            while not done.wait(_LOOK_SECONDS):
                look()

        context.addJobTag(tag)
        watcher = threading.Thread(target=watch, name="lakemark-build-bar", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            context.removeJobTag(tag)
            look()


def _stages(context: SparkContext, job: int) -> list[SparkStageInfo]:
    tracker = context.statusTracker()
    info = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
    return [stage for stage in stages if stage]


def _listed(builder: object, key: str) -> list[str]:
    """The entries of a list with commas that was set on a builder."""
    return [entry for entry in _options(builder).get(key, "").split(",") if entry]


def _options(builder: object) -> dict[str, str]:
    """What was set on a builder so far; PySpark keeps it in `_options`."""
    options = getattr(builder, "_options", {})
    return {str(key): str(value) for key, value in dict(options).items()}

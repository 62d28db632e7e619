"""A SparkSession on which everything here works: the right Python on executors, Arrow on, UTC."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from pyspark import SparkContext
from pyspark.sql import SparkSession

from steelyard.core.notices import tell_waiting
from steelyard.spark.ahead import Ahead
from steelyard.spark.classic import require_no_connection
from steelyard.spark.java import require_java
from steelyard.spark.kafka import kafka_jars
from steelyard.spark.source import register

log = logging.getLogger(__name__)

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows go to Python 10,000 at a time, however wide they are: a worker would hold all of them twice.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    "spark.ui.showConsoleProgress": "false",
    # Without it PySpark takes a stack trace for every column expression, at every batch.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # States of Python aggregates are gathered in lists, which Spark would sort for beyond 128 keys per task.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # A barrier job that finds too few slots, since an executor was just lost, looks again after a second, for ten
    # minutes in all; by default after fifteen.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "600",
}
_LOCAL_DEFAULTS = {
    "spark.ui.port": "0",  # a free one, on the loopback address like all else
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "steelyard.spark.daemon",
}


_TRACING = (
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.storage.BlockManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.util.Utils",
    "org.apache.spark.sql.catalyst.analysis.ResolveWriteToStream",
)
"""Spark's loggers that print, each in its turn, the stack trace of what a query raises; and the one that warns at every
start that adaptive execution is off in streams."""
_OF_PYSPARK = "SQLQueryContextLogger"
"""PySpark's own, which prints such a trace as one line of JSON."""
_OWN_LOGGING = "log4j2-defaults.properties"
"""What Spark logs by where nobody has set up its logging."""

STARTING = (
    "starting Spark at {}: some seconds, and some more for the first batch, which starts Python workers and compiles "
    "its plan; later batches take neither"
)
"""What a person who waits for the first result wants to know."""
_ELSEWHERE = "PYSPARK_GATEWAY_PORT"
"""Set where another program, such as spark-submit, has said where Spark runs."""


def chosen_master(master: str | None, config: Mapping[str, str]) -> str | None:
    """Where Spark is to run; None where whoever started this program has said it.

    >>> chosen_master(None, {"spark.master": "yarn"})
    'yarn'
    """
    where = master or config.get("spark.master") or os.environ.get("SPARK_MASTER") or os.environ.get("MASTER")
    if where is None and _ELSEWHERE not in os.environ:
        return "local[*]"
    return where


@contextmanager
def _local_address(master: str | None) -> Iterator[None]:
    """Tell a local Spark its address while it starts; else it warns that it had to choose one."""
    if master is None or not master.startswith("local") or "SPARK_LOCAL_IP" in os.environ:
        yield
        return
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        yield
    finally:
        del os.environ["SPARK_LOCAL_IP"]


def session(
    name: str = "steelyard",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    kafka: bool | Sequence[str] = False,
    ahead: bool = True,
    quiet: bool = False,
) -> SparkSession:
    """Get or make a SparkSession that is set up for Steelyard.

    Parameters
    ----------
    name
        The application's name.
    master
        For example `"local[8]"`; that of `spark-submit` or the environment where none is given, and `local[*]`
        without one.
    config
        Spark options, which win over the defaults here.
    kafka
        Put Spark's Kafka connector on the class path (fetched once; see `docs/kafka.md`). Maven coordinates in
        place of True take another release of it.
    ahead
        Load what a first batch needs in a thread while Spark starts, and then let a job of one row start Python's
        workers, where Spark is local. A process that is forked meanwhile (`multiprocessing`) waits for that thread, 30
        seconds at most. False leaves all of it to the first batch.
    quiet
        Print no line about what takes long. It is printed on standard error, once, where that is a terminal and the
        program has set up no logging; the logger `steelyard` has it at INFO in any case.

    Notes
    -----
    Executors run the Python that `PYSPARK_PYTHON` names. Without it they would take the system's, which has no
    PyArrow, so it is set to this interpreter unless you set it yourself.

    A local Spark prints no stack traces of failed tasks and queries: what failed is told in one sentence, and the
    logger `steelyard.traces` has the trace. `config={"spark.log.level": "WARN"}` at the first session of a process
    keeps them, and so does a `log4j2.properties` of your own.
    """
    require_no_connection(config or {})
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    where = chosen_master(master, config or {})
    options = dict(_DEFAULTS)
    if where is not None:
        builder = builder.master(where)
        if where.startswith("local"):
            options |= _LOCAL_DEFAULTS
    if kafka:
        jars = kafka_jars(None if kafka is True else kafka)
        options["spark.jars"] = ",".join(str(jar) for jar in jars)
    options |= dict(config or {})
    for option, value in options.items():
        builder = builder.config(option, value)
    runs = SparkContext._active_spark_context is not None
    if not runs:
        tell_waiting(log, STARTING.format(where or "the place it was given"), aloud=not quiet)
    with _local_address(where), Ahead() if ahead and not runs else nullcontext() as loading:
        spark = builder.getOrCreate()
    local = str(spark.sparkContext.master).startswith("local")
    if local and not _chose_level(spark, options):
        without_traces(spark)
    register(spark)
    if loading is not None:
        loading.go_on(spark, local)
    return spark


def _chose_level(spark: SparkSession, options: Mapping[str, str]) -> bool:
    """Whether the user has said what Spark logs."""
    return "spark.log.level" in options or spark.sparkContext.getConf().contains("spark.log.level")


def without_traces(spark: SparkSession) -> None:
    """Let Spark's loggers print no stack traces, unless its logging is the user's own."""
    logging.getLogger(_OF_PYSPARK).setLevel(logging.CRITICAL)
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr] # there is one in the driver
    if str(log4j.LogManager.getContext(False).getConfigLocation()).endswith(_OWN_LOGGING):
        for logger in _TRACING:
            log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)

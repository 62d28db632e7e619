"""What a first batch needs, made ready while Spark starts: modules, compiled functions, and then Python's workers.

None of it can fail a session: an error is logged, and what was not made ready is made by the first batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from threading import Event, Thread

import pyarrow as pa
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MODULES = ("pandas", "pyarrow.compute", "pyarrow.parquet", "numba", "steelyard.spark.stream")
"""What a query imports, a second of processor time and more."""
MOST_SECONDS = 30.0
"""For which a session waits for modules, which take less than the JVM does."""
DAEMON = "spark.python.daemon.module"


class Ahead:
    """Loads modules and compiled functions in a thread that begins at once.

    Modules that import each other must not be imported by two threads at a time, so whoever starts Spark waits for
    them; compiled functions, which take longer where an installation has none yet, may go on beside the program.
    """

    def __init__(self) -> None:
        self._imported = Event()
        self.thread = _in_background(self._load, "loading what a first batch needs")

    def _load(self) -> None:
        try:
            for name in MODULES:
                import_module(name)
        finally:
            self._imported.set()
        compiled()

    def go_on(self, spark: SparkSession) -> None:
        """Wait for the modules; then let a job of one task start Python's workers, where they are on this machine."""
        self._imported.wait(MOST_SECONDS)
        if spark.conf.get(DAEMON, None) is not None:
            _in_background(lambda: workers(spark), "starting Python workers")


def compiled() -> None:
    """Have the functions at hand that every plan and every key needs: from numba's cache, or compiled."""
    from steelyard.core import KeyCounts  # noqa: PLC0415 - in the thread, while Spark starts
    from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415
    from steelyard.partition.prompt import Prompt  # noqa: PLC0415

    Prompt().plan(KeyCounts.of({1: 1}), 2)
    for keys in ([1], ["a"]):
        spark_hash(pa.array(keys))


def workers(spark: SparkSession) -> None:
    """A job of one row, for which Spark starts the daemon that forks its Python workers."""
    spark.sparkContext.setJobDescription("steelyard: Python workers, for the first batch")
    spark.range(0, 1, 1, 1).mapInArrow(_same, "id bigint").write.format("noop").mode("overwrite").save()


def _same(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return rows


def _in_background(work: Callable[[], None], what: str) -> Thread:
    def guarded() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the first batch meets it again, and says so
            log.info("%s ahead failed, the first batch does it: %s", what, str(error).partition("\n")[0])

    thread = Thread(target=guarded, name=what, daemon=True)
    thread.start()
    return thread

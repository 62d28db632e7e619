"""What a first batch needs, made ready while Spark starts: modules, compiled functions, and then Python's workers.

None of it can fail a session: an error is logged, and what was not made ready is made by the first batch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from threading import Event, Thread, current_thread
from types import TracebackType

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MODULES = ("pandas", "pyarrow.compute", "pyarrow.parquet", "numba", "steelyard.spark.stream")
"""What a query imports, a second of processor time and more."""
MOST_SECONDS = 30.0
"""For which a session waits for modules, which take a second or two, and a fork for what is compiled as well."""
LOOK_SECONDS = 0.02
"""Between two looks whether there is a JVM."""

_loading: set[Thread] = set()
"""Threads that may hold locks of imports and of numba's compiler."""


class Ahead:
    """Loads modules and compiled functions in a thread, from when there is a JVM; `with` it, Spark is started.

    PySpark starts the JVM by a fork that runs Python, which a lock that another thread holds would stop for ever:
    nothing is loaded before. Where Spark does not start, nothing is loaded any more.

    Modules that import each other must not be imported by two threads at a time, so whoever starts Spark waits for
    them; compiled functions, which take longer where an installation has none yet, may go on beside the program.
    """

    def __init__(self) -> None:
        self._imported, self._given_up = Event(), Event()
        self.thread = _in_background(self._load, "loading what a first batch needs")

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._given_up.set()

    def _load(self) -> None:
        while SparkContext._gateway is None:
            if self._given_up.wait(LOOK_SECONDS):
                return
        _loading.add(current_thread())
        try:
            for name in MODULES:
                if self._given_up.is_set():
                    return
                import_module(name)
            self._imported.set()
            compiled()
        finally:
            self._imported.set()
            _loading.discard(current_thread())

    def go_on(self, spark: SparkSession, local: bool) -> None:
        """Wait for the modules; then let a job of one task start Python's workers, where they are on this machine."""
        if not self._imported.wait(MOST_SECONDS):
            log.warning(
                "modules for the first batch are not loaded after %g seconds: sy.session(ahead=False) leaves them to "
                "the first batch",
                MOST_SECONDS,
            )
        elif local:
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
    spark.range(0, 1, 1, 1).mapInArrow(_same, "id bigint").collect()


def _same(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return rows


def _in_background(work: Callable[[], None], what: str) -> Thread:
    def guarded() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the first batch meets it again, and says so
            said = f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
            log.info("%s ahead failed, the first batch does it: %s", what, said)

    thread = Thread(target=guarded, name=what, daemon=True)
    thread.start()
    return thread


def _before_fork() -> None:
    """Wait for what is being loaded: a forked process has the locks of a thread, but not the thread that frees them."""
    for thread in tuple(_loading - {current_thread()}):
        thread.join(MOST_SECONDS)
        if thread.is_alive():
            log.warning(
                "a process is forked while functions for the first batch are compiled, after %g seconds: it may wait "
                "for ever where it compiles some; sy.session(ahead=False) leaves them to the first batch",
                MOST_SECONDS,
            )


os.register_at_fork(before=_before_fork)

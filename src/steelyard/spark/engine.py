"""What engines that work batch by batch share: one batch at a time, each once, timed; and how a query runs one."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from pyspark.sql import DataFrame

from steelyard.core import SteelyardError
from steelyard.core.durable import damaged, told
from steelyard.spark.checkpoint import CheckpointFolder
from steelyard.spark.query import Committed, Query
from steelyard.spark.scratch import let_go

log = logging.getLogger(__name__)

FIRST = "the first batch starts Python workers, and Spark compiles its plan: seconds that later ones do not take"
"""What a person who waits for the first result wants to know."""
REPORTS = 100
"""Batches whose reports are kept."""
Report = TypeVar("Report")


class StoppedError(SteelyardError):
    """A batch came while the query was being stopped; it is done at the next start."""


class BatchEngine(ABC, Generic[Report]):
    """Works on one batch after the other, each exactly once; `last` is the newest commit."""

    last: Committed
    state: CheckpointFolder

    def __init__(self) -> None:
        self.reports: deque[Report] = deque(maxlen=REPORTS)
        self.stopping = False
        self._busy = threading.Lock()

    def process(self, batch: DataFrame, number: int) -> Report | None:
        """One batch, from its rows to its commit; None for a batch that was committed before a crash."""
        with self._busy:
            if self.stopping:
                raise StoppedError(f"batch {number} was not begun: the query is being stopped")
            if number == self.last.batch:
                return None
            if number != self.last.batch + 1:
                raise damaged(
                    self.state.newest_commit,
                    f"is of batch {self.last.batch}, and Spark goes on with batch {number}",
                )
            self.state.begin(number)
            try:
                return self._process(batch, number)
            except Exception as error:
                own = told(error)
                if own is None or isinstance(error, SteelyardError):
                    raise
                raise own from error

    @abstractmethod
    def _process(self, batch: DataFrame, number: int) -> Report:
        """The same for a batch that is new."""

    def let_end(self, seconds: float) -> bool:
        """Begin no further batch, and wait for the one under way; whether it ended in time."""
        self.stopping = True
        ended = self._busy.acquire(timeout=seconds)
        if ended:
            self._busy.release()
        return ended


def started(
    engine: BatchEngine[Report], rows: DataFrame, checkpoint: str, trigger: dict[str, Any], name: str | None
) -> Query[Report]:
    """A query that gives the engine every batch of a stream."""
    engine.state.require_spark()
    failures: list[BaseException] = []

    def work(batch: DataFrame, number: int) -> None:
        try:
            if engine.process(batch, number) is not None and len(engine.reports) == 1:
                log.info("query %s: the first batch is done: %s", name or "without a name", engine.reports[0])
        except BaseException as error:
            if not engine.stopping:
                failures.append(error)
            raise

    writer = rows.writeStream.foreachBatch(work).option("checkpointLocation", f"{checkpoint}/spark")
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    log.info("query %s has started; %s", name or "without a name", FIRST)
    return Query(writer.start(), engine, failures, partial(let_go, checkpoint))


class Clock:
    """Wall-clock time by phase."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside to `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> float:
        """Time since the clock was made."""
        return time.perf_counter() - self.started


def instant_text(micros: int) -> str:
    """An instant as reports show it.

    >>> instant_text(1_500_000)
    '1970-01-01T00:00:01.500Z'
    """
    seconds, rest = divmod(micros, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:03d}Z"

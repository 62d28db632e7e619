"""What engines that work batch by batch share: one batch at a time, each once, timed; and how a query runs one."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from steelyard.control import Feed
from steelyard.core import BatchError, Progress, SteelyardError
from steelyard.core.durable import damaged, state_error_in
from steelyard.core.errors import place_of
from steelyard.core.notices import tell_waiting
from steelyard.core.progress import FAILED
from steelyard.spark.checkpoint import CheckpointFolder
from steelyard.spark.query import Committed, Query
from steelyard.spark.scratch import let_go

log = logging.getLogger(__name__)
traces = logging.getLogger("steelyard.traces")
"""Gets the stack traces of failures that are told in a sentence; where no logging is set up, they are not printed."""
traces.addHandler(logging.NullHandler())

FIRST = "the first batch starts Python workers, and Spark compiles its plan: seconds that later ones do not take"
"""What a person who waits for the first result wants to know."""
_CALL_SITE = "callSite.short"
"""The property of a thread of Spark's that has the name of its stages."""
LONGEST = 500
"""Characters of a reason that a user is shown; the log has all."""
_TRACEBACK = "Traceback (most recent call last):"
_OURS = re.compile(rf"^{re.escape(BatchError.__module__)}\.{BatchError.__name__}: ", re.MULTILINE)
"""Begins a sentence of ours in the text of a task's error."""


class StoppedError(SteelyardError):
    """A batch came while the query was being stopped; it is done at the next start."""


class BatchEngine(ABC):
    """Works on one batch after the other, each exactly once; `last` is the newest commit."""

    last: Committed
    state: CheckpointFolder

    def __init__(self) -> None:
        self.feed = Feed()
        self.stopping = False
        self.title = "steelyard"
        self._busy = threading.Lock()

    def process(self, batch: DataFrame, number: int) -> Progress | None:
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
                own = state_error_in(error)
                if own is None or isinstance(error, SteelyardError):
                    raise
                raise own from error

    def _clock(self, batch: DataFrame, number: int) -> Clock:
        """A clock for a batch, which also names the jobs of each phase in Spark's UI."""
        context = batch.sparkSession.sparkContext

        def begun(phase: str) -> None:
            said = f"{self.title}, batch {number}: {phase}"
            context.setJobDescription(said)
            context.setLocalProperty(_CALL_SITE, said)  # else stages are called by the line that called Python

        return Clock(begun)

    @abstractmethod
    def _process(self, batch: DataFrame, number: int) -> Progress:
        """The same for a batch that is new."""

    def let_end(self, seconds: float) -> bool:
        """Begin no further batch, and wait for the one under way; whether it ended in time."""
        self.stopping = True
        ended = self._busy.acquire(timeout=seconds)
        if ended:
            self._busy.release()
        return ended


def start_query(engine: BatchEngine, rows: DataFrame, checkpoint: str, trigger: dict[str, Any], name: str) -> Query:
    """A query that gives the engine every batch of a stream."""
    engine.state.require_spark()
    failures: list[BaseException] = []

    engine.title = name
    feed = engine.feed
    feed.begin(name)
    started = threading.Event()

    def work(batch: DataFrame, number: int) -> None:
        started.wait()  # events carry the ids that Spark has drawn
        try:
            if engine.process(batch, number) is not None and len(feed.progress) == 1:
                log.info("query %s: the first batch is done: %s", name, feed.progress[0])
        except BaseException as error:
            if engine.stopping:
                raise
            failures.append(in_a_sentence(error, f"{name}, batch {number}"))
            feed.tell(Progress(number, kind=FAILED, decision=str(failures[0])))
            threading.Thread(target=feed.close, name=f"end of {name}", daemon=True).start()  # perhaps nobody waits
            log.error("%s", failures[0])
            raise failures[0].with_traceback(None) from None  # all that Spark's UI shows of it

    def ended() -> None:
        let_go(checkpoint)
        feed.close()

    writer = rows.writeStream.foreachBatch(work).option("checkpointLocation", f"{checkpoint}/spark")
    if trigger:
        writer = writer.trigger(**trigger)
    tell_waiting(log, f"query {name} has started; {FIRST}")
    try:
        query = writer.queryName(name).start()
    except BaseException:
        feed.close()
        raise
    feed.id, feed.run_id = query.id, query.runId
    started.set()
    return Query(query, engine, failures, ended)


_QUERIES = itertools.count(1)


def readable_name(what: str) -> str:
    """A name for a query that was given none: what it does, and a number, since no two that run may share one."""
    return f"{what} #{next(_QUERIES)}"


def in_a_sentence(error: BaseException, where: str) -> BaseException:
    """An error as a user should read it: our own as it is, another in one sentence, with the whole of it in the log."""
    if isinstance(error, SteelyardError) or not isinstance(error, Exception):
        return error
    traces.error("%s failed", where, exc_info=error)
    return BatchError(f"{where} failed: {reason(error)}{place_of(error)}", error)


def reason(error: Exception) -> str:
    """The line of an error that says what went wrong, without the stack traces of Python and the JVM.

    >>> reason(ValueError("no"))
    'ValueError: no'
    """
    if isinstance(error, Py4JJavaError):  # its first line names only the call
        return _java_reason(str(error))[:LONGEST]
    text = str(error).partition("\n\tat ")[0].partition("JVM stacktrace:")[0]
    _, traced, tail = text.rpartition(_TRACEBACK)
    tail = _OURS.sub("", tail)
    lines = [line.rstrip() for line in tail.splitlines() if line.strip()]
    if traced:  # a task's: behind the indented frames stands the error
        lines = [line for line in lines if not line.startswith(" ")]
    line = lines[0] if lines else repr(error)
    return (line if traced else f"{type(error).__name__}: {line}")[:LONGEST]


def _java_reason(text: str) -> str:
    """The deepest cause in the text of a Java error; of a failed Python task, what Python raised.

    >>> _java_reason("calling o3.save.\\n: a.SaveError: no\\n\\tat b\\nCaused by: a.DiskError: full")
    'a.DiskError: full'
    """
    if _TRACEBACK in text:
        return reason(RuntimeError(text))
    causes = re.findall(r"^(?:Caused by)?: (.+)$", text, re.MULTILINE)
    return causes[-1] if causes else text.partition("\n")[0]


class Clock:
    """Wall-clock time by phase; `begun` is told of each phase."""

    def __init__(self, begun: Callable[[str], None] = lambda name: None) -> None:
        self._begun = begun
        self.started = time.perf_counter()
        self.phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside to `name`."""
        self._begun(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> float:
        """Time since the clock was made."""
        return time.perf_counter() - self.started

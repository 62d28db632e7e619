"""A running query, with the verbs that PySpark's own has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from pyspark.sql.streaming.query import StreamingQuery

from steelyard.control import Feed
from steelyard.core import Progress, SteelyardError
from steelyard.core.hints import Hinting
from steelyard.core.shown import Shown

LOOK_EVERY = 0.05
"""Seconds between two looks at whether a query is still active."""


class Committed(Protocol):
    """What a commit says of itself."""

    @property
    def batch(self) -> int:
        """The newest batch that is done."""
        ...


class Engine(Protocol):
    """What a query needs of the engine that works on its batches."""

    @property
    def last(self) -> Committed:
        """The newest commit."""
        ...

    @property
    def feed(self) -> Feed:
        """All that happens."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether no further batch is begun."""
        ...

    def let_end(self, seconds: float) -> bool:
        """Begin no further batch, and wait for the one under way; whether it ended in time."""
        ...


class Query(Shown, Hinting):
    """What `Stream.start()` gives: watch it, wait for it, stop it.

    Parameters
    ----------
    spark_query
        Structured Streaming's query, which drives the batches.
    engine
        The engine that works on them.
    failures
        What it raised.
    ended
        Called when the query has been seen to end, perhaps more than once.
    """

    _hints: ClassVar[dict[str, str]] = {
        "runId": "did you mean 'run_id'?",
        "progress": "did you mean 'last_progress'?",
        "explain": "'last_progress' has what was decided for the newest batch",
    }

    def __init__(
        self,
        spark_query: StreamingQuery,
        engine: Engine,
        failures: list[BaseException],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._query = spark_query
        self._engine = engine
        self._failures = failures
        self._when_ended = ended
        self._feed = engine.feed

    @property
    def id(self) -> str:
        """The query's id, which stays the same over restarts from one checkpoint."""
        return self._query.id

    @property
    def run_id(self) -> str:
        """The id of this run, another one for each start."""
        return self._query.runId

    @property
    def name(self) -> str | None:
        """The name given to the builder."""
        return self._query.name

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return self._query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """What Spark says it is doing, and the newest batch that is committed."""
        said = dict(self._query.status)
        if self._failures:  # Spark would give the whole stack trace
            said["message"] = f"failed: {self._failures[0]}"
        return {**said, "committedBatch": self._engine.last.batch}

    @property
    def last_progress(self) -> Progress | None:
        """What the newest batch, or epoch, was."""
        return self._feed.progress[-1] if self._feed.progress else None

    @property
    def recent_progress(self) -> list[Progress]:
        """What the last hundred batches, or epochs, were, oldest first."""
        return list(self._feed.progress)

    def on_progress(self, listener: Callable[[Progress], object]) -> Query:
        """Call a function with everything that happens: batches, decisions, moves, failures.

        It is called in a thread of its own: one that is slow, or raises, does not harm the query. What happened before
        is told first, the last hundred events of it.
        """
        self._feed.listen(listener)
        return self

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, `timeout` seconds at most; raises what made it fail."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while self._query.isActive:  # who waits in the JVM gets a long trace at Control-C
                left = until - time.monotonic()
                if left <= 0:
                    return False
                time.sleep(min(LOOK_EVERY, left))
            self._query.awaitTermination()
        except Exception:
            self._raise_own()
            if self._engine.stopping:  # a batch that began while the query was being stopped
                return True
            raise
        finally:
            if not self._query.isActive:
                self._when_ended()
        return True

    def process_all_available(self) -> None:
        """Wait until all that the source has now is processed; for tests."""
        try:
            self._query.processAllAvailable()
        except Exception:
            self._raise_own()
            raise

    def stop(self, wait: float = 60.0) -> None:
        """Let the batch under way end, for `wait` seconds at most, and stop; a restart goes on from there."""
        self._engine.let_end(wait)
        self._query.stop()
        self._when_ended()

    def exception(self) -> BaseException | None:
        """What made the query fail, or None; being stopped is no failure."""
        if self._failures:
            return self._failures[0]
        return None if self._engine.stopping else self._query.exception()

    def _raise_own(self) -> None:
        """Raise the error as it was in Python, not as Spark passed it on through the JVM."""
        if self._failures and isinstance(self._failures[0], SteelyardError):
            raise self._failures[0].with_traceback(None) from None

    def _facts(self) -> Mapping[str, object]:
        return {
            "name": self.name or self.id,
            "state": "active" if self.is_active else "failed" if self.exception() else "stopped",
            "newest": str(self.last_progress or "no batch yet"),
            "failure": str(self.exception() or ""),
        }

    def __repr__(self) -> str:
        state = "active" if self.is_active else "stopped"
        return f"Query({self.name or self.id}, {state}, last: {self.last_progress or 'no batch yet'})"

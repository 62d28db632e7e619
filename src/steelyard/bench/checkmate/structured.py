"""Plain Structured Streaming over NexMark's streams, with its own checkpoints: what a row takes, commits, restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.applications import nexmark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "structured_streaming"
"""What it is called beside protocols."""
CONFIG = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""As an expert sets it: as many partitions as there are workers, and what is cheapest to commit."""
SAMPLES_PER_SECOND = 40.0
"""Rows whose age is looked at, of each stream: as many as there are probes of four source instances."""
LOOK_SECONDS = 0.05
PATIENCE = 60.0
MICROS = 1_000_000
UPDATES = {"q12": "update"}
"""Output modes: a running count gives what changed; all others append what they make."""
COMMITS = ("walCommit", "commitOffsets")
"""What Spark reports of a batch: the log of offsets before it, the log of commits behind it."""


@dataclass
class Batches:
    """What a query told of its batches."""

    ages: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since rows began to come, seconds that rows took) of a sample of the rows."""
    commits: list[float] = field(default_factory=list)
    """Seconds that each batch took for the logs of offsets and commits."""
    ends: list[float] = field(default_factory=list)
    """When each batch ended, in seconds since 1970."""

    def take(self, told: Mapping[str, Any], rates: Mapping[str, float], began: float) -> None:
        """Add a batch, as Spark's progress has it."""
        if not told["numInputRows"]:
            return
        took = told["durationMs"]
        end = datetime.fromisoformat(told["timestamp"]).timestamp() + took["triggerExecution"] / 1000
        self.ends.append(end)
        self.commits.append(sum(took.get(name, 0) for name in COMMITS) / 1000)
        for source, rate in zip(told["sources"], rates.values(), strict=True):
            first, last = (_offset(source[name]) for name in ("startOffset", "endOffset"))
            step = max(1, round(rate / SAMPLES_PER_SECOND))
            rows = np.arange(-(-first["row"] // step) * step, last["row"], step)
            came = last.get("started", 0) / MICROS + rows / rate
            self.ages += [(end - began, end - one) for one in came.tolist()]


def _offset(told: object) -> dict[str, int]:
    """An offset, which Spark may give as text, and as nothing before the first batch."""
    found = json.loads(told) if isinstance(told, str) else told
    return {"row": 0, **found} if isinstance(found, dict) else {"row": 0}


@dataclass(frozen=True)
class Plain:
    """Runs queries of NexMark as plain Spark has them.

    Parameters
    ----------
    spark
        A session with `CONFIG`.
    scratch
        A folder for checkpoints.
    """

    spark: SparkSession
    scratch: Path

    def run(
        self, query: nexmark.Query, rate: float, seconds: float, stops: Sequence[float] = (), skew: float = 0.0
    ) -> tuple[Batches, list[float], list[float]]:
        """A query at a rate for so many seconds; in each second of `stops` it ends and starts from its checkpoint.

        Gives its batches, the second of each stop, and how long it took from then until a batch of the next start had
        ended.
        """
        began = time.time()
        checkpoint = self.scratch / f"{query.name}-{began}"
        rates = {one: rate * nexmark.SHARES[one] / self._shares(query) for one in query.streams}
        found = Batches()
        stopped: list[float] = []
        restarts: list[float] = []
        for until in (*stops, seconds):
            running = self._started(query, rates, checkpoint, skew)
            self._wait(running, began + until)
            ended, before = time.time(), len(found.ends)
            running.stop()
            self._take(running, found, rates, began)
            if stopped:
                restarts.append(found.ends[before] - began - stopped[-1])
            if until != seconds:
                stopped.append(ended - began)
        return found, stopped, restarts

    def _shares(self, query: nexmark.Query) -> int:
        return sum(nexmark.SHARES[one] for one in query.streams)

    def _started(
        self, query: nexmark.Query, rates: Mapping[str, float], checkpoint: Path, skew: float
    ) -> StreamingQuery:
        streams = [
            self.spark.readStream.format("steelyard")
            .options(workload="nexmark", stream=name, rate=f"constant:{speed}", partitions=2, skew=skew)
            .load()
            .withWatermark("event_time", "0 seconds")
            for name, speed in rates.items()
        ]
        return (
            query.plain(*streams)
            .writeStream.format("noop")
            .outputMode(UPDATES.get(query.name, "append"))
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def _wait(self, running: StreamingQuery, until: float) -> None:
        deadline = time.time() + PATIENCE
        while time.time() < until or not any(one["numInputRows"] for one in running.recentProgress):
            if running.exception() is not None or time.time() > max(until, deadline):
                raise RuntimeError(f"a plain query gave no batch within {PATIENCE:g} s: {running.exception()}")
            time.sleep(LOOK_SECONDS)

    def _take(self, running: StreamingQuery, found: Batches, rates: Mapping[str, float], began: float) -> None:
        for told in _told(running):
            found.take(told, rates, began)


def _told(running: StreamingQuery) -> Iterator[Mapping[str, Any]]:
    for one in running.recentProgress:
        yield json.loads(one.json) if hasattr(one, "json") else one

"""What tasks tell the driver about themselves, without a job of its own: rows, time, frequent keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext

from steelyard.core import ReduceObservation, TaskObservation

Entry = dict[str, Any]
REDUCE = "reduce"
"""The stage of reduce tasks; all others are of map tasks."""


class _Merged(AccumulatorParam[dict[Any, Entry]]):
    """Entries by (stage, block); a task that is run again replaces what it said."""

    def zero(self, value: dict[Any, Entry]) -> dict[Any, Entry]:
        return {}

    def addInPlace(self, value1: dict[Any, Entry], value2: dict[Any, Entry]) -> dict[Any, Entry]:  # noqa: N802
        value1.update(value2)
        return value1


class TaskLog:
    """Collects entries from tasks; one for each query, emptied at each batch.

    Sent to tasks inside their function; `take` works in the driver only.
    """

    def __init__(self, context: SparkContext) -> None:
        self._entries: Accumulator[dict[Any, Entry]] = context.accumulator({}, _Merged())

    def add(self, stage: str, entry: Entry) -> None:
        """Called in a task."""
        task = TaskContext.get()
        self._entries.add({(stage, task.partitionId() if task else 0): entry})

    def take(self) -> dict[Any, Entry]:
        """Called in the driver: all entries since the last time."""
        entries = dict(self._entries.value)
        self._entries.value = {}
        return entries


def task_reports(entries: dict[Any, Entry]) -> tuple[TaskObservation, ...]:
    """One report a block, the stages of its map task added up."""
    blocks = sorted({block for stage, block in entries if stage != REDUCE})
    reports = []
    for block in blocks:
        stages = [entry for (stage, at), entry in entries.items() if at == block and stage != REDUCE]
        reports.append(
            TaskObservation(
                block,
                rows=max(entry["rows"] for entry in stages),
                clusters=max(entry.get("clusters", 0) for entry in stages),
                seconds=sum(entry["seconds"] for entry in stages),
                cpu_seconds=sum(entry["cpu_seconds"] for entry in stages),
            )
        )
    return tuple(reports)


def reduce_reports(entries: dict[Any, Entry]) -> tuple[ReduceObservation, ...]:
    """One report a bucket that got anything."""
    found = sorted((bucket, entry) for (stage, bucket), entry in entries.items() if stage == REDUCE and entry["rows"])
    return tuple(
        ReduceObservation(bucket, entry["seconds"], entry["rows"], entry["keys"], entry["cpu_seconds"])
        for bucket, entry in found
    )


@dataclass
class Timing:
    """Time that a task spent in its own code, waiting for input not counted."""

    rows: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    extra: Entry = field(default_factory=dict)

    @contextmanager
    def working(self, rows: int = 0) -> Iterator[None]:
        """Around a piece of work."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.rows += rows
            self.seconds += time.perf_counter() - wall
            self.cpu_seconds += time.process_time() - cpu


@contextmanager
def timed(log: TaskLog | None, stage: str) -> Iterator[Timing]:
    """Time a task's work and, at its end, tell the driver."""
    timing = Timing()
    yield timing
    if log is not None:
        log.add(
            stage,
            {"rows": timing.rows, "seconds": timing.seconds, "cpu_seconds": timing.cpu_seconds, **timing.extra},
        )

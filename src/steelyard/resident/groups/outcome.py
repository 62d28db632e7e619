"""What a run of batches gave: results, how each batch went, and which changes of plan there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from steelyard.core import Progress
from steelyard.core.durations import instant_text
from steelyard.core.shown import Shown
from steelyard.resident.gang import Recovery
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.position import Position
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK


@dataclass
class BatchRun:
    """A batch on its way. Moments are of the driver's clock, in seconds from the start of the stream."""

    batch: int
    plan: ExecutionPlan
    rows: int
    keys: int = 0
    """Distinct keys that receivers counted, each by itself; 0 where nobody asked for them."""
    last: bool = False
    ready: float = 0.0
    """When its blocks were announced."""
    begun: float = 0.0
    """When the batch before was done, if that was later."""
    partition_seconds: float = 0.0
    wait_seconds: float = 0.0
    """How long receivers waited for its plan."""
    largest_over_mean: float = 1.0
    interval: float = 1.0
    done: float = 0.0
    mapped: float = 0.0
    """When its last map task had ended."""
    map_tasks: list[float] = field(default_factory=list)
    """Seconds of each map task, in the order in which they ended."""
    reduce_tasks: dict[int, float] = field(default_factory=dict)
    """Seconds of each reduce task that has ended, by its bucket."""
    bad: int = 0
    """Rows that were left out where they were read."""
    late: int = 0
    """Rows that had no time, or were too late for their windows."""
    missing: set[tuple[str, int]] = field(default_factory=set)
    """(stage, number) of each task that has not ended; those of windows are numbered by worker."""
    silent: set[int] = field(default_factory=set)
    """Workers that have not told how far their windows are."""
    results: list[pa.RecordBatch] = field(default_factory=list)
    panes: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    watermark: int = MIN_WATERMARK
    latest: float = 0.0
    """When the last of it was heard of."""

    @property
    def seconds(self) -> float:
        """Processing time: without the time that it waited for the batches before it."""
        return self.done - self.begun

    def progress(self) -> Progress:
        """As an event, when it is done."""
        mapped = max(0.0, self.mapped - self.begun)
        known = MIN_WATERMARK < self.watermark < MAX_WATERMARK
        return Progress(
            self.batch,
            rows=self.rows + self.bad,
            late_rows=self.late,
            bad_rows={"refused": self.bad} if self.bad else {},
            results=sum(part.num_rows for part in self.results),
            watermark=instant_text(self.watermark) if known else None,
            seconds={
                "partition": self.partition_seconds,
                "wait": self.wait_seconds,
                "map": mapped,
                "reduce": self.seconds - mapped,
                "total": self.seconds,
            },
            details={
                "keys": self.keys,
                "blocks": self.plan.blocks,
                "buckets": self.plan.buckets,
                "load": self.seconds / self.interval,
                "ready": self.ready,
                "done": self.done,
                "largest_over_mean": self.largest_over_mean,
                "map_tasks": tuple(self.map_tasks),
                "reduce_tasks": tuple(self.reduce_tasks.values()),
                "last": self.last,
            },
            words=f"in {self.plan.blocks} blocks and {self.plan.buckets} buckets",
        )


@dataclass(frozen=True)
class PlanChange:
    """A decision of the elasticity policy."""

    decided_on: int
    """The batch that it saw."""
    first: int
    """The batch from which it holds."""
    plan: ExecutionPlan
    reason: str


@dataclass(repr=False)
class GroupOutcome(Shown):
    """What a run gave, across generations."""

    results: dict[int, pa.Table] = field(default_factory=dict)
    """By batch; empty where they were handed to a callback."""
    delivered: int = 0
    """Batches below this one have given their results."""
    start: float = 0.0
    """The moment of the driver's `time.monotonic()` at which batch 0 began: a clock that is set holds nothing up."""
    batches: dict[int, Progress] = field(default_factory=dict)
    """How each batch went that is done: beside what any batch has, `load` (W: its time over the interval) and moments
    of the driver's clock, in seconds from the start: `ready`, when its blocks were announced, and `done`."""
    changes: list[PlanChange] = field(default_factory=list)
    restarts: int = 0
    recoveries: list[Recovery] = field(default_factory=list)
    """What each generation that failed took to be noticed, and to be followed by one that works."""
    messages: int = 0
    """Frames from the driver to workers."""
    groups: int = 0
    refused: int = 0
    """Rows that had no time, or were too late for their windows."""
    ends: dict[int, tuple[Position, ...]] = field(default_factory=dict)
    """Where batches ended, receiver by receiver, so that they can be made again."""
    saved: int = 0
    """Batches below this one are in the saved windows."""
    windows: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """By worker: panes that were open then."""
    watermark: int | None = None

    def _facts(self) -> Mapping[str, object]:
        ran = list(self.batches.values())
        return {
            "batches": self.delivered,
            "rows": sum(one.rows for one in ran),
            "results": sum(table.num_rows for table in self.results.values()),
            "mean load": sum(float(one.load) for one in ran) / len(ran) if ran else None,
            "changes of plan": len(self.changes),
            "groups": self.groups,
            "restarts": self.restarts,
            "refused rows": self.refused,
        }

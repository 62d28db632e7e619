"""What a run of batches gave: results, how each batch went, and which changes of plan there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from steelyard.core.shown import Shown
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.position import Position


@dataclass
class BatchRun:
    """How a batch went. Moments are of the driver's clock, in seconds from the start of the stream."""

    batch: int
    plan: ExecutionPlan
    rows: int
    keys: int
    """Distinct keys that receivers counted, each by itself; 0 where nobody asked for them."""
    last: bool
    ready: float
    """When its blocks were announced."""
    begun: float
    """When the batch before was done, if that was later."""
    partition_seconds: float
    wait_seconds: float
    largest_over_mean: float
    done: float = 0.0
    mapped: float = 0.0
    """When its last map task had ended."""
    map_tasks: list[float] = field(default_factory=list)
    """Seconds of each map task, in the order in which they ended."""
    reduce_tasks: list[float] = field(default_factory=list)
    """Seconds of each reduce task."""
    interval: float = 1.0

    @property
    def seconds(self) -> float:
        """Processing time: without the time that it waited for the batches before it."""
        return self.done - self.begun

    @property
    def load(self) -> float:
        """W: processing time over interval."""
        return self.seconds / self.interval

    @property
    def delay(self) -> float:
        """From its announcement to its end, the wait included."""
        return self.done - self.ready


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
    batches: dict[int, BatchRun] = field(default_factory=dict)
    changes: list[PlanChange] = field(default_factory=list)
    restarts: int = 0
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
            "mean load": sum(one.load for one in ran) / len(ran) if ran else None,
            "changes of plan": len(self.changes),
            "groups": self.groups,
            "restarts": self.restarts,
            "refused rows": self.refused,
        }

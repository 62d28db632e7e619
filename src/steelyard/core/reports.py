"""What was seen of a batch, as users read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from steelyard.core.shown import Shown, counted


@dataclass(frozen=True)
class TaskReport:
    """What one map task did with its block, measured inside the task."""

    block: int
    rows: int
    clusters: int
    seconds: float
    """Wall-clock time in the task's own code."""
    cpu_seconds: float
    """Processor time of the task's process, which does not count waiting."""


@dataclass(frozen=True, repr=False)
class BatchReport(Shown):
    """What one batch was, what was decided for it, and what it cost.

    `seconds` has a share for each phase: `statistics`, `plan`, `process` (place, map, combine, reduce and
    write the state's log), `results` (make and write them), `commit`, and their `total`.
    """

    batch: int
    rows: int = 0
    keys: int = 0
    """Distinct keys; where the batch has several panes of windows, a key counts once in each."""
    late_rows: int = 0
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows that were refused, by reason."""
    results: int = 0
    """Result rows handed to the sink."""
    blocks: int = 0
    buckets: int = 0
    policy: str = ""
    placement: str = ""
    """`blocks` where rows were moved as planned, `in_place` where they stayed in the source's partitions."""
    statistics: str = ""
    """Where the key counts came from: `exact`, `carried`, or `none`."""
    plan: Mapping[str, float] = field(default_factory=dict)
    """Planned BSI, BCI, KSR, largest_over_mean and split_keys; empty where nothing was planned."""
    tasks: tuple[TaskReport, ...] = ()
    largest_over_mean: float = 1.0
    """Rows of the largest block over the mean, as they really were; 1 where it was not measured."""
    watermark: str | None = None
    state_rows: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    decision: str = ""
    """Why the next batch has other numbers of tasks; empty where nothing changes."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_dict(), default=str)

    def _facts(self) -> Mapping[str, object]:
        """All that is not nothing, but for the single tasks."""
        return {name: value for name, value in self.to_dict().items() if value != 0 and name != "tasks"}

    def __str__(self) -> str:
        bad = f", {sum(self.bad_rows.values())} bad" if self.bad_rows else ""
        late = f", {self.late_rows} late" if self.late_rows else ""
        where = f"{counted(self.blocks, 'block')} by {self.policy}" if self.policy else "the source's partitions"
        balance = f", largest/mean {self.largest_over_mean:.2f}" if self.policy else ""
        return (
            f"batch {self.batch}: {counted(self.rows, 'row')} in {where}{balance}{bad}{late}, "
            f"{counted(self.buckets, 'bucket')}, {counted(self.results, 'result')}, "
            f"{self.seconds.get('total', 0.0):.2f} s"
        )


@dataclass(frozen=True, repr=False)
class JoinReport(Shown):
    """What one batch of a similarity join was, and what it cost."""

    batch: int
    rows: int = 0
    late_rows: int = 0
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows that were refused, by reason."""
    results: int = 0
    """Pairs handed to the sink; one that is in several sliding windows counts once for each."""
    copies: int = 0
    """Records that space partitions got: a record and its copies in partitions near it."""
    members: int = 0
    """Records that worksets got."""
    created: int = 0
    """Worksets that came into being."""
    distances: int = 0
    """To centroids of space partitions and worksets."""
    comparisons: int = 0
    """Of records with each other."""
    free_pairs: int = 0
    """Pairs that needed no comparison."""
    loads: tuple[float, ...] = ()
    """Comparisons and free pairs of each worker in this batch."""
    task_seconds: tuple[float, ...] = ()
    """Seconds of each worker's task, waiting for input not counted."""
    moves: int = 0
    """Worksets that changed their worker after this batch."""
    splits: int = 0
    """Worksets that were cut after this batch."""
    moved_bytes: int = 0
    reason: str = ""
    """Why worksets were balanced, or why not."""
    state_bytes: int = 0
    """Of the records that are kept."""
    watermark: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def imbalance(self) -> float:
        """Degree of imbalance of the workers' loads, sum |L - mean L|, over the mean."""
        mean = sum(self.loads) / len(self.loads) if self.loads else 0.0
        return sum(abs(load - mean) for load in self.loads) / mean if mean else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self) | {"imbalance": self.imbalance}

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_dict(), default=str)

    def _facts(self) -> Mapping[str, object]:
        """All that is not nothing, but for the single tasks."""
        return {name: value for name, value in self.to_dict().items() if value != 0 and name != "tasks"}

    def __str__(self) -> str:
        bad = f", {sum(self.bad_rows.values())} bad" if self.bad_rows else ""
        late = f", {self.late_rows} late" if self.late_rows else ""
        moved = f", {counted(self.moves, 'workset')} moved ({self.moved_bytes} bytes)" if self.moves else ""
        return (
            f"batch {self.batch}: {counted(self.rows, 'row')}{bad}{late}, {counted(self.results, 'pair')}, "
            f"{counted(self.comparisons, 'comparison')}, {self.free_pairs} free{moved}, "
            f"{self.seconds.get('total', 0.0):.2f} s"
        )

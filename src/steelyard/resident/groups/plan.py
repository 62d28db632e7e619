"""What is sent ahead: which batches are scheduled, each with its numbers of tasks and where they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.core import OptionError
from steelyard.resident.wire import WireError

MAX_TASKS = 4096
"""Map or reduce tasks of a batch, and workers: what is said of a batch beside its rows has room for so many."""


@dataclass(frozen=True)
class ExecutionPlan:
    """How a batch is run: p map tasks and r reduce tasks, dealt out to the workers in turn.

    Examples
    --------
    >>> plan = ExecutionPlan(blocks=3, buckets=2, workers=2)
    >>> [plan.map_worker(block) for block in range(3)], plan.buckets_of(1)
    ([0, 1, 0], [1])
    """

    blocks: int
    buckets: int
    workers: int

    def __post_init__(self) -> None:
        for name in ("blocks", "buckets", "workers"):
            if not 1 <= getattr(self, name) <= MAX_TASKS:
                raise OptionError(f"{name} of an execution plan must be 1 to {MAX_TASKS}, got {getattr(self, name)}")

    def map_worker(self, block: int) -> int:
        """Where a map task runs."""
        return block % self.workers

    def reduce_worker(self, bucket: int) -> int:
        """Where a reduce task runs."""
        return bucket % self.workers

    def buckets_of(self, worker: int) -> list[int]:
        """The reduce tasks of a worker."""
        return list(range(worker, self.buckets, self.workers))

    def to_dict(self) -> dict[str, int]:
        """As plain values."""
        return {"blocks": self.blocks, "buckets": self.buckets, "workers": self.workers}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ExecutionPlan:
        """From plain values that somebody said; WireError where there is no such plan."""
        try:
            return cls(int(values["blocks"]), int(values["buckets"]), int(values["workers"]))
        except OptionError as error:
            raise WireError(str(error)) from error


class Schedule:
    """The batches that a scheduler was told of, one group behind the other, and the plan of each.

    A plan that is changed later holds for batches from a given one on. Whoever cuts batches asks `plan_of` once, at
    the cut; what it gets is what the batch is run with, whatever comes afterwards.

    Examples
    --------
    >>> schedule = Schedule()
    >>> schedule.group(0, 4, ExecutionPlan(2, 2, 1))
    >>> schedule.update(2, ExecutionPlan(3, 2, 1))
    >>> [schedule.plan_of(batch).blocks for batch in range(4)], schedule.plan_of(4)
    ([2, 2, 3, 3], None)
    """

    def __init__(self, first: int = 0) -> None:
        self.until = first
        """Batches below this one are scheduled."""
        self._plans: dict[int, ExecutionPlan] = {}

    def group(self, first: int, batches: int, plan: ExecutionPlan) -> None:
        """So many more batches, all with one plan; ValueError where they do not begin behind the last."""
        if first != self.until or batches < 1:
            raise ValueError(f"a group of {batches} from batch {first} cannot follow batch {self.until - 1}")
        for batch in range(first, first + batches):
            self._plans[batch] = plan
        self.until = first + batches

    def update(self, first: int, plan: ExecutionPlan) -> None:
        """From batch `first` on, scheduled batches have this plan. What is scheduled later comes with its own."""
        for batch in range(first, self.until):
            if batch in self._plans:
                self._plans[batch] = plan

    def plan_of(self, batch: int) -> ExecutionPlan | None:
        """The plan of a batch; None where it is not scheduled yet, or was forgotten."""
        return self._plans.get(batch)

    def forget(self, below: int) -> None:
        """Batches below this one are over."""
        for batch in [batch for batch in self._plans if batch < below]:
            del self._plans[batch]

"""What the tasks of a plan take: by costs that were measured, or by those that reports of tasks tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from steelyard.core import BatchObservation, BlockPlan, BucketAllocator, OptionError
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.kernels.xxhash import spark_hash
from steelyard.partition import PromptAllocator


@dataclass(frozen=True)
class TaskCosts:
    """Seconds of a map task, `m0 + a rows + b keys`, and of a reduce task, `q0 + c records + e keys`.

    Parameters
    ----------
    map_task, map_row, map_key
        m0, a and b: a map task, each of its rows, each of its keys.
    reduce_task, reduce_record, reduce_key
        q0, c and e: a reduce task, each record that it gets (one for a key and block), each of its keys.

    Examples
    --------
    >>> costs = TaskCosts(0.001, 1e-6, 2e-6, 0.001, 1e-6, 1e-6)
    >>> costs.map_seconds([1000, 4000], [100, 50]).round(4).tolist()
    [0.0022, 0.0051]
    """

    map_task: float = 0.005
    map_row: float = 1e-6
    map_key: float = 2e-6
    reduce_task: float = 0.005
    reduce_record: float = 1e-6
    reduce_key: float = 1e-6

    def map_seconds(self, rows: Any, keys: Any) -> Floats:
        """Of each map task, from rows and distinct keys of its block."""
        return np.asarray(self.map_task + self.map_row * np.asarray(rows) + self.map_key * np.asarray(keys))

    def reduce_seconds(self, records: Any, keys: Any) -> Floats:
        """Of each reduce task, from records and distinct keys of its bucket."""
        work = self.reduce_record * np.asarray(records) + self.reduce_key * np.asarray(keys)
        return np.asarray(self.reduce_task + work)

    @classmethod
    def reported(cls, batches: Iterable[BatchObservation]) -> TaskCosts:
        """The costs that explain best what the tasks of these batches took.

        OptionError where none were measured, or where tasks were too much alike to tell what a row costs, and what a
        key.

        >>> told = BatchObservation.of_edge(0, [10, 20, 20], [5, 5, 10], [0.2, 0.3, 0.4], beside=0.0)
        >>> TaskCosts.reported([told])
        Traceback (most recent call last):
        ...
        steelyard.core.errors.OptionError: no reduce task of these batches told its time, records and keys
        """
        seen = list(batches)
        maps = [(1.0, one.rows, one.clusters, one.seconds) for batch in seen for one in batch.tasks]
        reduces = [(1.0, one.records, one.keys, one.seconds) for batch in seen for one in batch.reduce_tasks]
        for stage, items, cases in (("map", "rows and clusters", maps), ("reduce", "records and keys", reduces)):
            if not any(one[3] > 0 and one[1] for one in cases):
                raise OptionError(f"no {stage} task of these batches told its time, {items}")
        return cls(*fitted([one for one in maps if one[3] > 0]), *fitted([one for one in reduces if one[3] > 0]))


def fitted(cases: Sequence[tuple[float, float, float, float]]) -> tuple[float, float, float]:
    """The three costs, none negative, of which (1, x, y, seconds) has the least sum of squared relative errors.

    OptionError where there are many such: the cases differ too little.

    >>> [round(cost, 6) for cost in fitted([(1, 0, 0, 1.0), (1, 10, 0, 3.0), (1, 0, 10, 2.0), (1, 10, 10, 4.0)])]
    [1.0, 0.2, 0.1]
    """
    table = np.array(cases, dtype=np.float64)
    parts = table[:, :3] / table[:, 3:]
    sizes = np.linalg.norm(parts, axis=0)
    if not sizes.all() or np.linalg.matrix_rank(parts / sizes) < 3:
        raise OptionError(
            f"{len(table)} tasks are too much alike to tell what a task, a row and a key cost: give some of other "
            "sizes, with more and with fewer keys for their rows"
        )
    best, least = np.zeros(3), np.inf
    for chosen in (list(one) for many in (1, 2, 3) for one in combinations(range(3), many)):  # the others cost nothing
        costs = np.linalg.lstsq(parts[:, chosen] / sizes[chosen], np.ones(len(table)), rcond=None)[0] / sizes[chosen]
        error = float(np.square(parts[:, chosen] @ costs - 1).sum())
        if costs.min() >= 0 and error < least:
            best, least = np.zeros(3), error
            best[chosen] = costs
    return float(best[0]), float(best[1]), float(best[2])


def reduce_work(plan: BlockPlan, allocator: BucketAllocator, buckets: int) -> tuple[Ints, Ints]:
    """Records and distinct keys of each bucket, where map tasks allot their clusters, of one record each.

    >>> from steelyard.core import KeyCounts
    >>> plan = BlockPlan.of(KeyCounts.of({"a": 3, "b": 1}), 2, key=[0, 0, 1], block=[0, 1, 1], rows=[2, 1, 1])
    >>> records, keys = reduce_work(plan, PromptAllocator(), 2)
    >>> sorted(records.tolist()), sorted(keys.tolist())
    ([1, 2], [1, 1])
    """
    bucket = np.zeros(len(plan.key), np.int64)
    hashes = spark_hash(plan.counts.keys) if len(plan.counts) else np.zeros(0, np.int64)
    order = np.argsort(plan.block, kind="stable")
    bounds = np.searchsorted(plan.block[order], np.arange(plan.blocks + 1))
    for task in range(plan.blocks):
        at = order[bounds[task] : bounds[task + 1]]
        mine = plan.key[at]
        if len(mine):
            one = np.ones(len(mine), np.int64)
            bucket[at] = allocator.allot(one, plan.split[mine], hashes[mine], buckets, task).bucket
    pairs = np.unique(bucket * max(1, len(plan.counts)) + plan.key)
    of_pair = pairs // max(1, len(plan.counts))
    return np.bincount(bucket, minlength=buckets), np.bincount(of_pair, minlength=buckets)


@dataclass(frozen=True)
class PlanTimes:
    """What each task of a plan would take: for training by run time (`partition.learned`).

    Parameters
    ----------
    costs
        Those of the simulator, or `TaskCosts.reported` of batches that ran.
    buckets
        Reduce tasks.
    allocator
        What sends key clusters to them.
    """

    costs: TaskCosts
    buckets: int = 16
    allocator: BucketAllocator = field(default_factory=PromptAllocator)

    def __call__(self, plan: BlockPlan) -> tuple[Floats, Floats]:
        """Seconds of each map task, and of each reduce task."""
        records, keys = reduce_work(plan, self.allocator, self.buckets)
        return self.costs.map_seconds(plan.sizes, plan.cardinalities), self.costs.reduce_seconds(records, keys)

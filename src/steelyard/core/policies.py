"""What a policy is: a small object with one or two verbs, no input or output, and a readable `repr`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from steelyard.core.counts import Ints, KeyCounts
from steelyard.core.plans import BlockPlan, BucketPlan
from steelyard.core.reports import Observation, ScalingDecision


@runtime_checkable
class Partitioner(Protocol):
    """Cuts a batch into blocks.

    An engine calls `plan` once a batch, in the driver, before the rows move. The plan may be for other rows
    than those that come (statistics carried over), so an engine must treat unknown keys by the plan's rule.
    """

    name: str
    needs_counts: bool
    """Whether `plan` looks at the counts; where it does not, an engine gathers none."""

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """The blocks of a batch with these counts. Raises nothing for empty counts or one block."""
        ...


@runtime_checkable
class BucketAllocator(Protocol):
    """Sends key clusters to reduce buckets. Called inside every map task, without talking to the others."""

    name: str

    def allot(
        self,
        weights: Ints,
        split: np.ndarray[Any, np.dtype[np.bool_]],
        hashes: Ints,
        buckets: int,
        task: int = 0,
    ) -> BucketPlan:
        """A bucket for each cluster: `hashes[i] mod buckets` where `split[i]`, free choice elsewhere."""
        ...


@runtime_checkable
class ElasticityPolicy(Protocol):
    """Chooses the next batch's numbers of map and reduce tasks from what the last batches did."""

    def decide(self, observation: Observation) -> ScalingDecision:
        """Called in the driver after each batch; the decision takes effect with the next one."""
        ...

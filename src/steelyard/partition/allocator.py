"""Bucket allocators: to which reduce task a map task sends each of its key clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from steelyard.core import BucketAllocator, BucketPlan, OptionError
from steelyard.core.names import named as object_named
from steelyard.kernels.rounds import worst_fit_rounds

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class HashAllocator:
    """Every cluster to the bucket of its hash: what Spark's shuffle does.

    Examples
    --------
    >>> HashAllocator().allot(np.array([5, 1]), np.array([False, True]), np.array([3, 4]), 2).bucket.tolist()
    [1, 0]
    """

    name: ClassVar[str] = "hash"

    def allot(self, weights: Ints, split: Flags, hashes: Ints, buckets: int, task: int = 0) -> BucketPlan:
        """`hashes mod buckets` for all."""
        return BucketPlan(np.mod(hashes, buckets).astype(np.int32), weights, buckets)


@dataclass(frozen=True)
class PromptAllocator:
    """Prompt's local bucket allocation (Algorithm 3): split keys by hash, the others by worst fit with removal.

    A split key is in several map tasks, which must agree without talking: they hash it. A key that is not
    split is in this task only, so its bucket is free. Each bucket gets one cluster a round, which evens out
    numbers of clusters as well as sizes.

    Parameters
    ----------
    rotate
        False drops the rule that a bucket leaves a round once it was used (better sizes, worse numbers of
        clusters): the ablation of the dissertation's section 2.5.

    Examples
    --------
    The clusters a to e, and a split key s that hashes to bucket 2:

    >>> weights = np.array([10, 9, 7, 5, 3, 6])
    >>> split = np.array([False] * 5 + [True])
    >>> plan = PromptAllocator().allot(weights, split, np.array([0, 0, 0, 0, 0, 2]), buckets=3)
    >>> plan.bucket.tolist(), plan.loads.tolist()
    ([0, 1, 2, 1, 0, 2], [13, 14, 13])
    """

    rotate: bool = True
    name: ClassVar[str] = "prompt"

    def allot(self, weights: Ints, split: Flags, hashes: Ints, buckets: int, task: int = 0) -> BucketPlan:
        """Buckets for one map task's clusters; ties start from bucket `task mod buckets`."""
        bucket = np.mod(hashes, buckets).astype(np.int64)
        # cap_j = |I| / r - what split keys already send there
        taken = np.bincount(bucket[split], weights=weights[split], minlength=buckets)
        free = np.flatnonzero(~split)
        free = free[np.argsort(-weights[free], kind="stable")]
        capacity = weights.sum() / buckets - taken
        bucket[free] = worst_fit_rounds(capacity, weights[free], task, self.rotate)
        return BucketPlan(bucket.astype(np.int32), weights, buckets)


ALLOCATORS: dict[str, type[Any]] = {kind.name: kind for kind in (PromptAllocator, HashAllocator)}


def allocator(named: str | BucketAllocator) -> BucketAllocator:
    """An allocator from its name, with parameters behind a question mark; an object is given back as it is.

    >>> allocator("prompt?rotate=false")
    PromptAllocator(rotate=False)
    """
    if isinstance(named, str):
        made: BucketAllocator = object_named("allocator", named, ALLOCATORS)
        return made
    if isinstance(named, type) or not isinstance(named, BucketAllocator):
        raise OptionError(f"an allocator is a name or an object with `name` and `allot`, got {named!r}")
    return named

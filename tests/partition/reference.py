"""Reference tables: what a map task must know of its keys to choose their buckets without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from steelyard.core import BlockPlan, BucketAllocator, BucketPlan
from steelyard.core.counts import Ints
from steelyard.core.policies import Flags


class ReferenceTable(NamedTuple):
    """The keys of one block, in the order of the plan's list."""

    key: np.ndarray[Any, np.dtype[np.int32]]
    """int32[keys of the block]: position in `plan.counts.keys`."""
    split: Flags
    """bool[keys of the block]: whether other blocks have rows of the key too."""
    rows: Ints
    """int64[keys of the block]: planned rows of the key in this block."""


@dataclass(frozen=True, eq=False)
class ReferenceTables:
    """The reference tables of all blocks of a plan (Abdelhamid 2021, Algorithm 2, last step).

    Parameters
    ----------
    plan
        The blocks.

    Examples
    --------
    >>> from steelyard.core import KeyCounts
    >>> plan = BlockPlan.of(KeyCounts.of({"a": 6, "b": 2}), 2, key=[0, 0, 1], block=[0, 1, 1], rows=[4, 2, 2])
    >>> ReferenceTables.of(plan).block(1)
    ReferenceTable(key=array([0, 1], dtype=int32), split=array([ True, False]), rows=array([2, 2]))
    """

    plan: BlockPlan
    _fragments: Ints
    _starts: Ints

    @classmethod
    def of(cls, plan: BlockPlan) -> ReferenceTables:
        """The tables of a plan."""
        fragments = np.argsort(plan.block, kind="stable")
        starts = np.searchsorted(plan.block[fragments], np.arange(plan.blocks + 1))
        return cls(plan, fragments, starts)

    def block(self, number: int) -> ReferenceTable:
        """What the map task of this block is told."""
        if not 0 <= number < self.plan.blocks:
            raise ValueError(f"there is no block {number} among {self.plan.blocks}, numbered from 0")
        mine = self._fragments[self._starts[number] : self._starts[number + 1]]
        key = self.plan.key[mine]
        return ReferenceTable(key, self.plan.split[key], self.plan.rows[mine])

    def allot(self, allocator: BucketAllocator, hashes: Ints, buckets: int) -> list[BucketPlan]:
        """What each block's map task decides by its own table: a bucket for each of its keys.

        Parameters
        ----------
        allocator
            Chooses the buckets.
        hashes
            int64[keys of the plan]: a hash of each key, the same in every task.
        buckets
            Number of reduce tasks.
        """
        plans = []
        for number in range(self.plan.blocks):
            table = self.block(number)
            plans.append(allocator.allot(table.rows, table.split, hashes[table.key], buckets, number))
        return plans

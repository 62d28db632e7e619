"""Key grouping: all rows of a key go to the block that its hash names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import at_least_one_block
from steelyard.partition.simple_routers import HashRouter


@dataclass(frozen=True)
class Hash:
    """Send a key to block `xxhash64(key) mod blocks`, as Spark does: no key is split, hot keys make stragglers.

    Examples
    --------
    >>> plan = Hash().plan(KeyCounts.of({"a": 900, "b": 60, "c": 40}), blocks=2)
    >>> plan.ksr, plan.largest_over_mean > 1.7
    (1.0, True)
    """

    name: ClassVar[str] = "hash"
    needs_counts: ClassVar[bool] = False

    def router(self, blocks: int, partitioner: int = 0) -> HashRouter:
        """The same, row by row."""
        return HashRouter(blocks, partitioner)

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Every key whole, in the block of its hash."""
        from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415 - tasks need no compiler

        at_least_one_block(blocks)
        block = np.mod(spark_hash(counts.keys), blocks)
        return BlockPlan.of(counts, blocks, key=np.arange(len(counts)), block=block, rows=counts.rows, policy=self.name)

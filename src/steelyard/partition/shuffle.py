"""Shuffle grouping: rows go round robin, so blocks are equal and every key is everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core import BlockPlan, KeyCounts, RowRule
from steelyard.core.plans import at_least_one_block
from steelyard.partition.simple_routers import ShuffleRouter


@dataclass(frozen=True)
class Shuffle:
    """Send the i-th row to block `i mod blocks`: sizes are equal, and a key stands in as many blocks as it can.

    The plan shows the rows as if each key's came one after the other; the real order of arrival only changes
    in which blocks a rare key stands.

    Examples
    --------
    >>> plan = Shuffle().plan(KeyCounts.of({"a": 900, "b": 60, "c": 40}), blocks=4)
    >>> plan.bsi, plan.ksr
    (0.0, 4.0)
    """

    name: ClassVar[str] = "shuffle"
    needs_counts: ClassVar[bool] = False

    def router(self, blocks: int, partitioner: int = 0) -> ShuffleRouter:
        """The same, row by row."""
        return ShuffleRouter(blocks, partitioner)

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Round robin over the rows of one key after the other."""
        return round_robin(counts, blocks, RowRule.ROUND_ROBIN, self.name)


def round_robin(counts: KeyCounts, blocks: int, rule: RowRule, policy: str) -> BlockPlan:
    """Deal `counts`' rows to the blocks in turn, as one deals cards."""
    at_least_one_block(blocks)
    pieces = np.minimum(counts.rows, blocks)  # a key stands in no more blocks than it has rows
    key = np.repeat(np.arange(len(counts)), pieces)
    piece = np.arange(len(key)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = np.cumsum(counts.rows) - counts.rows
    return BlockPlan.of(
        counts,
        blocks,
        key=key,
        block=(first[key] + piece) % blocks,
        rows=counts.rows[key] // blocks + (piece < counts.rows[key] % blocks),
        rule=rule,
        policy=policy,
    )

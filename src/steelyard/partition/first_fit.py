"""First fit decreasing with cuts: the contrast that keeps blocks equal and forgets how many keys they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import at_least_one_block


@dataclass(frozen=True)
class FirstFitDecreasing:
    """Fill one block after the other with the keys in descending order, and cut a key where a block is full.

    Sizes are equal, at most one key a block boundary is cut, and the last blocks get all the rare keys
    (Abdelhamid 2021, section 2.4.2, Fig 2.3).

    Examples
    --------
    >>> counts = KeyCounts.of(dict(K1=140, K2=88, K3=45, K4=40, K5=30, K6=22, K7=12, K8=8))
    >>> plan = FirstFitDecreasing().plan(counts, blocks=4)
    >>> plan.cardinalities.tolist(), plan.split.nonzero()[0].tolist()
    ([1, 2, 3, 5], [0, 1, 3])
    """

    name: ClassVar[str] = "ffd"
    paper: ClassVar[str] = "Abdelhamid 2021, section 2.4"
    needs_counts: ClassVar[bool] = True

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Keys end to end on a line of N rows, which is cut every ceil(N / P) rows."""
        at_least_one_block(blocks)
        order = np.argsort(-counts.rows, kind="stable")
        ends = np.cumsum(counts.rows[order])
        total = int(ends[-1]) if len(ends) else 0
        capacity = max(1, -(-total // blocks))
        borders = np.arange(1, blocks, dtype=np.int64) * capacity
        stops = np.union1d(ends, borders[borders < total])
        starts = np.r_[0, stops][: len(stops)]
        return BlockPlan.of(
            counts,
            blocks,
            key=order[np.searchsorted(ends, starts, side="right")],
            block=starts // capacity,
            rows=stops - starts,
            policy=self.name,
        )

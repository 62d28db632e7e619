"""Fragmentation minimisation: the contrast that cuts as few keys as it can and forgets how many a block has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import at_least_one_block


@dataclass(frozen=True)
class FragmentationMinimisation:
    """Each key whole into the tightest block that holds it, largest first; cut only what no block holds.

    What fits nowhere waits until all that fits is placed, since its cuts would use up the holes of others;
    then it is cut at the widest holes (after Abdelhamid 2021, section 2.4.2, Fig 2.3).

    Examples
    --------
    >>> counts = KeyCounts.of(dict(K1=140, K2=88, K3=45, K4=40, K5=30, K6=22, K7=12, K8=8))
    >>> plan = FragmentationMinimisation().plan(counts, blocks=4)
    >>> plan.split.nonzero()[0].tolist(), plan.cardinalities.tolist()
    ([0], [2, 3, 3, 1])
    """

    name: ClassVar[str] = "fragmin"
    paper: ClassVar[str] = "Abdelhamid 2021, section 2.4"
    needs_counts: ClassVar[bool] = True

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Best fit decreasing into blocks of ceil(N / P) rows, and cuts for the rest."""
        from steelyard.kernels.best_fit import best_fit  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.packing import place_residuals  # noqa: PLC0415

        at_least_one_block(blocks)
        order = np.argsort(-counts.rows, kind="stable")
        rows = counts.rows[order]
        capacity = -(-int(rows.sum()) // blocks)
        sizes = np.zeros(blocks, np.int64)
        block = best_fit(sizes, capacity, rows)
        fits, waits = np.flatnonzero(block >= 0), np.flatnonzero(block < 0)
        which, cut_block, cut_rows = place_residuals(sizes, capacity, np.full(len(waits), -1, np.int64), rows[waits])
        return BlockPlan.of(
            counts,
            blocks,
            key=order[np.r_[fits, waits[which]]],
            block=np.r_[block[fits], cut_block],
            rows=np.r_[rows[fits], cut_rows],
            policy=self.name,
        )

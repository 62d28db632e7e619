"""The rule by hand that PartLy's training begins with, under the same search as its network: what the network adds.

`partition.learned.teacher` is the same rule for the environment, a decision at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.counts import Ints
from steelyard.kernels.compiled import njit
from steelyard.partition.learned.teacher import HELD_BACK

SHARES = (HELD_BACK, HELD_BACK / 4, HELD_BACK / 16, 0.0)
"""Of a block: larger keys are put off. As many tries as PartLy's search has."""


def searched(counts: KeyCounts, blocks: int, policy: str) -> BlockPlan:
    """The teacher's plans, with more and more keys put off: the one with the least MPI."""
    return min((taught(counts, blocks, share, policy) for share in SHARES), key=lambda plan: plan.mpi_normalised())


def taught(counts: KeyCounts, blocks: int, share: float, policy: str = "") -> BlockPlan:
    """The teacher's plan, where keys above this share of a block are put off."""
    order = np.argsort(-counts.rows, kind="stable")
    key, block, rows = _decided(counts.rows[order], blocks, share)
    return BlockPlan.of(counts, blocks, key=order[key], block=block, rows=rows, policy=policy)


@njit()
def _decided(rows: Ints, blocks: int, share: float) -> tuple[Any, Any, Any]:
    """Position in `rows`, which descend, block and rows of each fragment."""
    keys, total = len(rows), rows.sum()
    capacity = -(-total // blocks)
    load, card = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
    key, block, put = [0][:0], [0][:0], [0][:0]
    later = [0][:0]
    for index in range(keys):
        if rows[index] > share * capacity and rows[index] > total // keys:
            later.append(index)
            continue
        at = 0
        for j in range(1, blocks):
            if card[j] < card[at] or (card[j] == card[at] and load[j] < load[at]):
                at = j
        load[at] += rows[index]
        card[at] += 1
        key.append(index)
        block.append(at)
        put.append(rows[index])
    while len(later):
        index = later.pop()
        rest = rows[index]
        holds = np.zeros(blocks, np.bool_)
        while rest > 0:
            best, widest = -1, 0
            for j in range(blocks):
                hole = capacity - load[j]
                if hole > capacity - load[widest]:
                    widest = j
                if hole >= rest and (best < 0 or (load[j], -card[j]) > (load[best], -card[best])):
                    best = j
            at = best if best >= 0 else widest
            hole = capacity - load[at]
            rows_here = min(rest, hole) if best < 0 and hole > 0 else rest
            load[at] += rows_here
            rest -= rows_here
            if not holds[at]:
                card[at] += 1
                holds[at] = True
            key.append(index)
            block.append(at)
            put.append(rows_here)
    return np.array(key), np.array(block), np.array(put)

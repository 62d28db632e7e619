"""Plans from trained weights, in NumPy and numba alone: decision by decision, or all keys in one pass."""

from __future__ import annotations

from typing import Literal

import numpy as np

from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import at_least_one_block
from steelyard.kernels.radix import stable_order
from steelyard.partition.learned.features import BLOCK, WHOLE
from steelyard.partition.learned.weights import Weights

Mode = Literal["auto", "sequential", "one_shot"]
MODES: tuple[Mode, ...] = ("auto", "sequential", "one_shot")
SEQUENTIAL_KEYS = 2_000
"""With more keys `"auto"` plans in one pass."""


def plan(weights: Weights, counts: KeyCounts, blocks: int, mode: Mode, policy: str) -> BlockPlan:
    """The plan of an agent that always does what it thinks best.

    Parameters
    ----------
    weights
        Of level 3.
    counts, blocks
        The batch.
    mode
        `"sequential"`: the networks are asked for each key. `"one_shot"`: one pass in waves; keys of a wave, one for each
        block, are dealt in the order of the blocks' scores. `"auto"`: one or the other by the number of keys.
    policy
        Whose plan it is.
    """
    from steelyard.kernels.partly import decide, in_order  # noqa: PLC0415 - tasks need no compiler

    at_least_one_block(blocks)
    if not len(counts):
        return BlockPlan.of(counts, blocks, key=[], block=[], rows=[], policy=policy)
    if blocks == 1:
        alone = np.arange(len(counts))
        return BlockPlan.of(counts, 1, key=alone, block=alone * 0, rows=counts.rows, policy=policy)
    (first, offsets), (last, last_offsets) = weights.actor
    assert len(first) == BLOCK + WHOLE
    most = int(counts.rows.max())
    order = stable_order(most - counts.rows, most + 1)
    one_pass = mode == "one_shot" or (mode == "auto" and len(counts) > SEQUENTIAL_KEYS)
    found = decide(counts.rows[order], blocks, first, offsets, np.ascontiguousarray(last.T), last_offsets, one_pass)
    key, block, rows = in_order(order, *found)
    return BlockPlan(counts, int(blocks), key, block, rows, policy=policy)

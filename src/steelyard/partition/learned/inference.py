"""Plans from trained weights, in NumPy and numba alone: decision by decision, or all keys in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import at_least_one_block
from steelyard.kernels.radix import stable_order
from steelyard.partition.learned.features import BLOCK, WHOLE
from steelyard.partition.learned.weights import Weights

Mode = Literal["auto", "sequential", "one_shot"]
MODES: tuple[Mode, ...] = ("auto", "sequential", "one_shot")
PATIENCE = (0.0, 8.0, 12.0, 100.0)
"""Plans are made as the network would, and with more and more keys put off; the one with the least MPI is taken."""
EVEN = 0.1
"""No further plan is made once sizes are less than this share of MPI: to put off more keys evens out sizes alone."""
SIZE, COST = 3, 4
"""Where `decide` gives what sizes cost, and all of it."""
SEQUENTIAL_KEYS = 2_000
"""With more keys `"auto"` plans in one pass."""


def plan(
    weights: Weights,
    counts: KeyCounts,
    blocks: int,
    mode: Mode,
    policy: str,
    patience: Sequence[float] = PATIENCE,
) -> BlockPlan:
    """The plan of an agent that always does what it thinks best.

    Parameters
    ----------
    weights
        Of level 3.
    counts, blocks
        The batch.
    mode
        `"sequential"`: the networks are asked for each key. `"one_shot"`: one pass in waves; keys of a wave, one for
        each block, are dealt in the order of the blocks' scores. `"auto"`: one or the other by the number of keys.
    policy
        Whose plan it is.
    patience
        What is added to the network's score of putting a key off, for each plan that is tried.
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
    rows, columns = counts.rows[order], np.ascontiguousarray(last.T)
    best = None
    for more in patience:
        found = decide(rows, blocks, first, offsets, columns, last_offsets, one_pass, more)
        if best is None or found[COST] < best[COST]:
            best = found
        if found[SIZE] <= EVEN * found[COST]:
            break
    assert best is not None
    which, where, put, _, _ = best
    key, block, rows = in_order(order, which, where, put)
    return BlockPlan(counts, int(blocks), key, block, rows, policy=policy)

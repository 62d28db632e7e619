"""What an agent sees: numbers whose sizes do not grow with keys or blocks, so that one network fits all batches.

The document's own observation is the counts and the matrix of fractions, `full`: n (m + 1) numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.partition.learned.transition import Batches, State

BLOCK, WHOLE = 6, 15
"""Numbers of each block, and of the batch as a whole."""
VALUE = 4
"""Numbers about all blocks that only the critic sees besides."""


def squash(value: Any, xp: Any = np) -> Any:
    """To within -1 and 1, finest around 0."""
    return value / (1 + xp.abs(value))


def observe(batches: Batches, state: State, xp: Any = np) -> tuple[Any, Any, Any]:
    """float32[batches, blocks, BLOCK], float32[batches, WHOLE] and float32[batches, VALUE].

    Loads are in parts of P_size, of the key shown and of the mean key; blocks that do not exist are zeros.
    """
    real = np.float32
    width = state.load.shape[1]
    exists = xp.arange(width)[None, :] < batches.blocks[:, None]
    p, keys = batches.blocks.astype(real), xp.maximum(batches.keys, 1).astype(real)
    size, total = xp.maximum(batches.capacity, 1).astype(real), xp.maximum(batches.total, 1).astype(real)
    mean_key = total / keys
    load, card = state.load.astype(real), state.card.astype(real)
    own = xp.maximum(state.rest, 1).astype(real)
    mean_load, mean_card = load.sum(-1) / p, card.sum(-1) / p
    hole = size[:, None] - load
    most = xp.where(exists, load, 0).max(-1)
    least = xp.where(exists, load, np.float32(np.inf)).min(-1)
    block = xp.stack(
        [
            xp.clip(hole / size[:, None], -1, 1),
            xp.clip(hole / own[:, None], -1, 2) / 2,
            squash((load - mean_load[:, None]) / own[:, None], xp),
            squash(card - mean_card[:, None], xp),
            state.holds.astype(real),
            squash((load - mean_load[:, None]) / mean_key[:, None], xp),
        ],
        -1,
    )
    left = (batches.keys - state.reached).astype(real)
    rows_left = xp.take_along_axis(batches.after, state.reached[:, None], axis=1)[:, 0]
    whole = xp.stack(
        [
            xp.minimum(own / size, 2),
            squash(xp.log(own / mean_key), xp),
            (left <= 0).astype(real),
            left / keys,
            squash(left / p / 8, xp),
            state.held / total,
            squash(state.waiting.astype(real) / p, xp),
            xp.where(exists, xp.maximum(hole, 0), 0).sum(-1) / (p * size),
            xp.minimum((most - mean_load) / size, 2),
            squash(8 * rows_left / xp.maximum(left, 1) / size, xp),
            squash((size - least) / own - 1, xp),
            xp.log(p) / 5,
            squash(xp.log(keys / p) / 2, xp),
            squash(2 * batches.rows[:, 0].astype(real) / size, xp),
            xp.minimum((least + own) / size, 2),
        ],
        -1,
    )
    spread = xp.sqrt(xp.where(exists, (load - mean_load[:, None]) ** 2, 0).sum(-1) / p) / mean_key
    most_card = xp.where(exists, card, 0).max(-1)
    parts = card.sum(-1) + left + state.waiting - batches.keys.astype(real)
    value = xp.stack(
        [
            squash(spread, xp),
            squash((most - size) / mean_key, xp),
            squash(most_card - keys / p, xp),
            squash(parts / p, xp),
        ],
        -1,
    )
    return xp.where(exists[:, :, None], block, 0).astype(real), whole.astype(real), value.astype(real)


def full(batches: Batches, fractions: Any, index: Any, xp: Any = np) -> Any:
    """float32[batches, keys (blocks + 2)]: the document's counts and matrix, and which key is shown.

    Counts are in parts of a block, N / m, so that a network may see batches of any size.
    """
    number, keys = batches.rows.shape
    counts = batches.rows * batches.blocks[:, None] / xp.maximum(batches.total, 1)[:, None]
    shown = xp.arange(keys)[None] == index[:, None]
    return xp.concatenate([counts, fractions.reshape(number, -1), shown], axis=1).astype(np.float32)

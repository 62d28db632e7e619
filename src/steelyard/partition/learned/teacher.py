"""What an agent imitates before it learns from rewards: Prompt's idea as decisions for one key after the other.

Level 3: keys above a quarter of a block are put off; the others go whole to the block with the fewest keys, of those to
the one with the fewest rows; keys that were put off fill the holes, best fit first. Levels 0 to 2: the fewest equal
parts that fit, the largest of them into the emptiest block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.partition.learned.actions import LATER, Level
from steelyard.partition.learned.transition import Batches, State

HELD_BACK = 0.25
"""Of P_size: larger keys are put off."""
FULL, PUT_OFF = 1, 2
"""Kinds of level 3, where `WHOLE` is 0."""


def advise(level: Level, batches: Batches, state: State, allowed: Any, xp: Any = np) -> tuple[Any, Any]:
    """int[batches], int[batches]: block and kind."""
    exists = xp.arange(state.load.shape[1])[None, :] < batches.blocks[:, None]
    far = np.float32(1e9)
    load, card = state.load.astype(np.float32), state.card.astype(np.float32)
    hole = batches.capacity[:, None].astype(np.float32) - load
    emptiest = xp.where(exists, load, far).argmin(-1)
    if not (level.modes == LATER).any():
        share = xp.maximum(batches.capacity.astype(np.float32) - xp.where(exists, load, far).min(-1), 1)
        wanted = xp.ceil(state.rest / xp.maximum(share, 1))
        is_equal = np.ptp(np.where(level.weights > 0, level.weights, 1), axis=1) == 0
        degrees, most = xp.asarray(level.degrees), int(level.degrees[is_equal].max())
        short = xp.where(xp.asarray(is_equal), xp.abs(degrees[None] - xp.minimum(wanted, most)[:, None]), far)
        return emptiest, xp.where(allowed[:, 0, :], short, far * 2).argmin(-1)
    own = state.rest.astype(np.float32)
    dealt = xp.where(exists, card * far / 1e4 + load, far).argmin(-1)
    fits = exists & (hole >= own[:, None])
    best = xp.where(fits, hole * 1e3 + card, far).argmin(-1)
    widest = xp.where(exists, hole, -far).argmax(-1)
    put_off = (own > HELD_BACK * batches.capacity) & allowed[:, 0, PUT_OFF]
    first_pass = state.reached < batches.keys
    can_fill = xp.where(exists, hole, -far).max(-1) > 0
    second = xp.where(fits.any(-1), best, widest)
    second_kind = xp.where(fits.any(-1) | ~can_fill, 0, FULL)
    block = xp.where(put_off, 0, xp.where(first_pass, dealt, second))
    kind = xp.where(put_off, PUT_OFF, xp.where(first_pass, 0, second_kind))
    return block, kind

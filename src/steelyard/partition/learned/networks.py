"""One small network scores every block for every kind of action; a second one judges the state, in training only."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.learning import Layers, forward
from steelyard.partition.learned.actions import LATER, Level
from steelyard.partition.learned.features import BLOCK

NEVER = -1e9
"""Logit of an action that there is not."""


def scores(layers: Layers, block: Any, whole: Any, xp: Any = np) -> Any:
    """float32[batches, blocks, kinds] of block[batches, blocks, BLOCK] and whole[batches, WHOLE].

    The first layer's inputs are those of the block, then those of the batch, whose share is computed once.
    """
    (weights, offsets), *others = layers
    hidden = block @ weights[:BLOCK] + (whole @ weights[BLOCK:] + offsets)[:, None, :]
    return forward(((xp.eye(hidden.shape[-1], dtype=np.float32), xp.zeros(1, np.float32)), *others), hidden, "relu", xp)


def logits(level: Level, found: Any, allowed: Any, blocks: Any, xp: Any = np) -> Any:
    """The scores of actions that there are; that of putting a key off, at block 0, is the mean over blocks."""
    exists = xp.arange(found.shape[1])[None, :] < blocks[:, None]
    mean = (found * exists[:, :, None]).sum(1, keepdims=True) / xp.maximum(blocks, 1)[:, None, None].astype(np.float32)
    return xp.where(allowed, xp.where(xp.asarray(level.modes) == LATER, mean, found), NEVER)

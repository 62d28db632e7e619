"""What the scheduler agent sees of batches, and which of its actions it may take: for one query or for many at once.

Abdelhamid 2021, section 4.8: the scheduler observes W, the rate, the keys, blocks and buckets, and adds or removes one
of each, or leaves them. Nothing here depends on how many rows or keys there are, so one network serves any query.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

WINDOW = 4
"""Batches whose rows and keys are seen."""
STEPS = np.array([(blocks, buckets) for blocks in (-1, 0, 1) for buckets in (-1, 0, 1)])
"""int[actions, 2]: what an action adds to blocks and buckets."""
ACTIONS, STAY = len(STEPS), 4
FEATURES = 14 + ACTIONS
VERSION = 1
"""Of the features; weights for another one are refused."""
IDLE = 0.5
"""At or below this load nothing is added; above 1 nothing is removed."""
MOST = 3.0
"""Loads and waits above are not told apart."""


class Looks(NamedTuple):
    """A look at each of several queries, or at one: all arrays have the same first axes."""

    load: Any
    """W of the batch that ended."""
    before: Any
    """W of the one before it."""
    mapped: Any
    """Share of the map stage in the processing time, a half where nobody measured it."""
    known: Any
    """Whether somebody did."""
    rows: Any
    """[..., WINDOW]: of the newest batches, the oldest first."""
    keys: Any
    """[..., WINDOW]"""
    blocks: Any
    buckets: Any
    most_blocks: Any
    most_buckets: Any
    waiting: Any
    """Intervals by which batches have fallen behind, as far as their loads tell."""


def _growth(counts: Any) -> tuple[Any, Any]:
    """Logarithm of the change in the last batch, and per batch over the window."""
    kept = np.log(np.asarray(counts, np.float64) + 1.0)
    last = kept[..., -1] - kept[..., -2]
    mean = (kept[..., -1] - kept[..., 0]) / (WINDOW - 1)
    return np.clip(last, -1, 1), np.clip(mean, -1, 1)


def features(looks: Looks) -> np.ndarray[Any, np.dtype[np.float32]]:
    """float32[..., FEATURES]: all that the network sees.

    The last ones say what load each action would lead to, if rows and keys go on to change as they did, the map stage
    follows rows, the reduce stage follows keys, and each goes with one over its tasks.
    """
    load, before = np.minimum(looks.load, MOST), np.minimum(looks.before, MOST)
    mapped = load * looks.mapped
    reduced = load - mapped
    rows, rows_mean = _growth(looks.rows)
    keys, keys_mean = _growth(looks.keys)
    blocks, buckets = np.asarray(looks.blocks, np.float64), np.asarray(looks.buckets, np.float64)
    waiting = np.minimum(looks.waiting, MOST)
    seen = [
        load - 0.9, before - 0.9, mapped, reduced, 5 * rows, 20 * rows_mean, 5 * keys, 20 * keys_mean,
        np.log2(blocks) / 5, np.log2(buckets) / 5, mapped / blocks, reduced / buckets, looks.known * 1.0, waiting,
    ]  # fmt: skip
    to_blocks = np.maximum(blocks[..., None] + STEPS[:, 0], 1)
    to_buckets = np.maximum(buckets[..., None] + STEPS[:, 1], 1)
    expected = (mapped * np.exp(rows_mean) * blocks)[..., None] / to_blocks
    expected = expected + (reduced * np.exp(keys_mean) * buckets)[..., None] / to_buckets
    found = np.concatenate([np.stack(np.broadcast_arrays(*seen), -1), 5 * (np.minimum(expected, MOST) - 0.9)], -1)
    return np.asarray(found, np.float32)


def allowed(looks: Looks) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool[..., ACTIONS]: within the bounds, nothing more for an idle query, nothing less for an overloaded one."""
    blocks = np.asarray(looks.blocks)[..., None] + STEPS[:, 0]
    buckets = np.asarray(looks.buckets)[..., None] + STEPS[:, 1]
    within = (blocks >= 1) & (buckets >= 1)
    within &= (STEPS[:, 0] <= 0) | (blocks <= np.asarray(looks.most_blocks)[..., None])
    within &= (STEPS[:, 1] <= 0) | (buckets <= np.asarray(looks.most_buckets)[..., None])
    load = np.asarray(looks.load)[..., None]
    within &= (load > IDLE) | (STEPS.max(axis=1) <= 0)
    within &= (load <= 1) | (STEPS.min(axis=1) >= 0)
    return np.asarray(within)

"""Clusters into buckets, by worst fit in rounds. NumPy only: map tasks run it, and are spared a compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


def worst_fit_rounds(capacity: Ints, weights: Ints, task: int, rotate: bool = True) -> Ints:
    """The second half of Prompt's Algorithm 3: worst fit with removal among the buckets, a whole round at a time.

    `weights` must be in descending order. Ties go to the bucket that comes first when counting from `task`.
    Within a round no capacity of a bucket that is still to be used changes, so a round is one sort of the
    buckets.
    """
    buckets = len(capacity)
    left = capacity.astype(np.float64).copy()
    chosen = np.empty(len(weights), np.int64)
    turn = (np.arange(buckets) - task) % buckets
    if not rotate:
        for i, weight in enumerate(weights.tolist()):
            best = int(np.lexsort((turn, -left))[0])
            chosen[i] = best
            left[best] -= weight
        return chosen
    if len(weights) and weights[0] == weights[-1]:  # equal clusters: the order of a round never changes again
        order = np.lexsort((turn, -left))
        return np.asarray(order[np.arange(len(weights)) % buckets])
    for first in range(0, len(weights), buckets):
        part = weights[first : first + buckets]
        order = np.lexsort((turn, -left))[: len(part)]
        chosen[first : first + len(part)] = order
        left[order] -= part
    return chosen

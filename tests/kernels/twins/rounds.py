"""The plain twin of `rounds`: one cluster at a time."""

from __future__ import annotations

import numpy as np

from steelyard.kernels.rounds import Ints


def worst_fit_rounds_plain(capacity: Ints, weights: Ints, task: int, rotate: bool) -> Ints:
    """The plain twin of `worst_fit_rounds`, straight from the listing."""
    buckets = len(capacity)
    left = capacity.astype(np.float64).copy()
    chosen = np.empty(len(weights), np.int64)
    candidates = set(range(buckets))
    for i, weight in enumerate(weights.tolist()):
        best = max(candidates, key=lambda j: (left[j], -((j - task) % buckets)))
        chosen[i] = best
        left[best] -= weight
        if rotate:
            candidates.discard(best)
            if not candidates:
                candidates = set(range(buckets))
    return chosen

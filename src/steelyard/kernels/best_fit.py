"""Best fit for items that are not to be cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]

NOWHERE = -1


@njit()
def best_fit(sizes: Ints, capacity: int, items: Ints) -> Ints:
    """The block of each item in turn: the fullest that holds it whole, the first of equals, or `NOWHERE`.

    `sizes` is changed in place.
    """
    block = np.full(len(items), NOWHERE, np.int64)
    for i in range(len(items)):
        best, least = NOWHERE, 0
        for j in range(len(sizes)):
            hole = capacity - sizes[j]
            if hole >= items[i] and (best < 0 or hole < least):
                best, least = j, hole
        block[i] = best
        if best >= 0:
            sizes[best] += items[i]
    return block

"""The sequential part of bin packing with fragments: residuals into the holes of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]


@njit()
def place_residuals(sizes: Ints, capacity: int, home: Ints, residual: Ints) -> tuple[Ints, Ints, Ints]:
    """Phase 3 of Prompt's Algorithm 2: fill the home block, then best fit, and cut where nothing fits.

    `sizes` is changed in place. Gives (which residual, block, rows) for each fragment.
    """
    room = 2 * len(residual) + len(sizes) + 16
    which = np.empty(room, np.int64)
    block = np.empty(room, np.int64)
    rows = np.empty(room, np.int64)
    used = 0
    for item in range(len(residual)):
        left = residual[item]
        if home[item] >= 0:
            hole = capacity - sizes[home[item]]
            if hole > 0:
                first = min(hole, left)
                sizes[home[item]] += first
                which[used], block[used], rows[used] = item, home[item], first
                used += 1
                left -= first
        while left > 0:
            best, best_hole, widest, widest_hole = -1, 0, 0, capacity - sizes[0]
            for j in range(len(sizes)):
                hole = capacity - sizes[j]
                if hole >= left and (best < 0 or hole < best_hole):
                    best, best_hole = j, hole
                if hole > widest_hole:
                    widest, widest_hole = j, hole
            target = best if best >= 0 else widest
            amount = left if best >= 0 else min(max(1, widest_hole), left)
            sizes[target] += amount
            left -= amount
            if used == len(which):
                which, block, rows = _doubled(which), _doubled(block), _doubled(rows)
            which[used], block[used], rows[used] = item, target, amount
            used += 1
        if used + 2 >= len(which):
            which, block, rows = _doubled(which), _doubled(block), _doubled(rows)
    return which[:used], block[:used], rows[:used]


@njit()
def _doubled(array: Ints) -> Ints:
    longer = np.empty(2 * len(array) + 16, np.int64)
    longer[: len(array)] = array
    return longer

"""The plain twin of `packing`, close to the listing."""

from __future__ import annotations

import numpy as np

from steelyard.kernels.packing import Ints


def place_residuals_plain(
    sizes: Ints, capacity: int, home: Ints, residual: Ints
) -> tuple[list[int], list[int], list[int]]:
    """The plain twin of `place_residuals`; it too changes `sizes` in place."""
    which: list[int] = []
    block: list[int] = []
    rows: list[int] = []

    def put(item: int, where: int, amount: int) -> None:
        sizes[where] += amount
        which.append(item)
        block.append(where)
        rows.append(amount)

    for item in range(len(residual)):
        left = int(residual[item])
        hole = capacity - int(sizes[home[item]]) if home[item] >= 0 else 0
        if hole > 0:
            first = min(hole, left)
            put(item, int(home[item]), first)
            left -= first
        while left > 0:
            holes = capacity - sizes
            fitting = [j for j in range(len(sizes)) if holes[j] >= left]
            if fitting:
                put(item, min(fitting, key=lambda j: (holes[j], j)), left)
                left = 0
            else:
                widest = int(np.argmax(holes))
                amount = min(max(1, int(holes[widest])), left)
                put(item, widest, amount)
                left -= amount
    return which, block, rows

"""The plain twin of `best_fit`."""

from __future__ import annotations

import numpy as np

from steelyard.kernels.best_fit import NOWHERE, Ints


def best_fit_plain(sizes: Ints, capacity: int, items: Ints) -> Ints:
    """The plain twin of `best_fit`; it too changes `sizes` in place."""
    block = np.full(len(items), NOWHERE, np.int64)
    for i, rows in enumerate(items.tolist()):
        fitting = [j for j in range(len(sizes)) if sizes[j] + rows <= capacity]
        if fitting:
            block[i] = min(fitting, key=lambda j: (capacity - sizes[j], j))
            sizes[block[i]] += rows
    return block

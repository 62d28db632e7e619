"""The plain twin of `chains`: the rows of each slot in a list."""

from __future__ import annotations

from steelyard.kernels.chains import Ints


def matches_plain(slots: Ints, rows_of: dict[int, list[int]]) -> list[tuple[int, int]]:
    """The plain twin of `link` and `matches`, from the rows of each slot in the order they came.

    >>> import numpy as np
    >>> matches_plain(np.array([1, 0]), {1: [4, 5]})
    [(0, 5), (0, 4)]
    """
    return [(i, row) for i, slot in enumerate(slots.tolist()) for row in reversed(rows_of.get(slot, []))]

"""The plain twins of `sliding`: the rows of a window, counted anew."""

from __future__ import annotations

from typing import Any


def loads_plain(slide_of_row: list[int], block: list[int], blocks: int, slides: int, now: int) -> list[int]:
    """Rows of each block in the window that ends with slide `now`: the plain twin of `SlidingLoads`.

    >>> loads_plain([0, 1, 2], [0, 1, 1], blocks=2, slides=3, now=3)
    [0, 2]
    """
    counts = [0] * blocks
    for number, where in zip(slide_of_row, block, strict=True):
        if not slides or number > now - slides:
            counts[where] += 1
    return counts


def held_plain(slide_of_row: list[int], keys: list[int], block: list[int], slides: int, now: int) -> set[Any]:
    """The (key, block) pairs of the window that ends with slide `now`: the plain twin of `Holders`.

    >>> sorted(held_plain([0, 1, 1, 2], [7, 7, 8, 7], [0, 1, 0, 1], slides=2, now=2))
    [(7, 1), (8, 0)]
    """
    rows = zip(slide_of_row, keys, block, strict=True)
    return {(key, where) for number, key, where in rows if not slides or number > now - slides}

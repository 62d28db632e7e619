"""What an agent may do with the key it is shown: the three levels of the document, and one that goes beyond them.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, sections 4.4 and 4.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.core import OptionError

SHARES, FILL, LATER = range(3)
"""Modes of a kind: shares of fixed ratios; what fits into the anchor, the rest being shown again; after all others."""
MOST_PARTS = 5
"""Beyond five blocks the document finds no gain in cutting a key."""
_EQUAL = [(1,) * parts for parts in range(1, MOST_PARTS + 1)]
_UNEQUAL = [(4, 2, 2), (4, 2, 1, 1), (4, 1, 1, 1, 1), (2, 2, 2, 1, 1)]
"""In eighths: 50, 25 and 12.5 %. What else they add up to, two halves and four quarters, is equal."""


@dataclass(frozen=True, eq=False)
class Level:
    """The kinds of one level; an action is a kind and the block that it begins with, its anchor.

    The other blocks of a cut are the least loaded ones.

    Parameters
    ----------
    number
        0: whole or in two halves. 1: up to five equal parts. 2: unequal ones too. 3: whole, as much as fits, or later,
        which can express every plan, Prompt's included.
    weights
        int64[kinds, 5]: shares of the parts, in the order anchor, least loaded, ...; 0 where there is none.
    modes
        int64[kinds]: `SHARES`, `FILL` or `LATER`.
    """

    number: int
    weights: np.ndarray[Any, np.dtype[np.int64]]
    modes: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def kinds(self) -> int:
        """How many there are."""
        return len(self.modes)

    @property
    def degrees(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """int64[kinds]: in how many blocks a key is after it, as far as that is fixed."""
        return np.asarray((self.weights > 0).sum(axis=1))

    @property
    def cuts(self) -> bool:
        """Whether there are shares of several blocks."""
        return bool(self.degrees.max() > 1)

    @property
    def holds_back(self) -> bool:
        """Whether a key may be put off."""
        return bool((self.modes == LATER).any())


def level(number: int) -> Level:
    """The level of this number.

    >>> [level(number).kinds for number in range(4)]
    [2, 5, 9, 3]
    """
    levels = (_EQUAL[:2], _EQUAL, _EQUAL + _UNEQUAL, [(1,), (), ()])
    if not 0 <= number < len(levels):
        raise OptionError(f"level of actions must be 0 to {len(levels) - 1}, got {number}")
    weights = np.zeros((len(levels[number]), MOST_PARTS), np.int64)
    for kind, shares in enumerate(levels[number]):
        weights[kind, : len(shares)] = shares
    modes = np.full(len(weights), SHARES)
    if number == len(levels) - 1:
        modes[1:] = FILL, LATER
    return Level(number, weights, modes)


def parts(rows: Any, weights: Any, xp: Any = np) -> Any:
    """Rows of each part, int[..., 5], of rows[...] cut by weights[..., 5]: largest remainders, so that none is lost.

    >>> parts(np.array(11), np.array([4, 2, 1, 1, 0])).tolist()
    [6, 3, 1, 1, 0]
    """
    whole = weights.sum(-1, keepdims=True)
    whole = xp.where(whole > 0, whole, 1)
    base, rest = rows[..., None] * weights // whole, rows[..., None] * weights % whole
    place = xp.arange(MOST_PARTS)
    ahead = (rest[..., None, :] > rest[..., :, None]) | (
        (rest[..., None, :] == rest[..., :, None]) & (place[None, :] < place[:, None])
    )
    ahead = ahead & (weights > 0)[..., None, :]
    missing = rows * (weights.sum(-1) > 0) - base.sum(-1)
    return base + ((ahead.sum(-1) < missing[..., None]) & (weights > 0))

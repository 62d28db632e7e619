"""Ranks by Zipf's law and Mandelbrot's: which of n keys a row has, when a few of them are popular."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats

MAX_KEYS = 10_000_000
"""The most keys of the synthetic streams of the dissertation on Prompt (Abdelhamid 2021, section 2.6.1)."""

KEYS_PER_CELL = 4
"""Keys of one guide cell, on average. Fewer make lookups faster and the guide slower to build."""


class RankTable:
    """The cumulative shares of `keys` ranks, rank r (from 0) weighing `(r + 1 + shift) ** -exponent`.

    A lookup is a binary search for a uniform number in the cumulative shares. In a table of 10^7 keys such a
    search misses the processor's cache a dozen times, so a guide says for each of many even steps between 0
    and 1 where to search, and only a few entries are left (Chen and Asau 1974). The answer is the same.

    Parameters
    ----------
    exponent
        0 is uniform, 1 is Zipf's law for words, 2 gives the first rank more than half of the rows.
    keys
        Number of ranks.
    shift
        Mandelbrot's q: makes the first ranks more equal, as in real text.

    Examples
    --------
    >>> table = RankTable(exponent=1.0, keys=3)
    >>> table.shares.round(3).tolist()
    [0.545, 0.273, 0.182]
    >>> table.ranks(np.array([0.0, 0.54, 0.55, 0.99])).tolist()
    [0, 0, 1, 2]
    """

    def __init__(self, exponent: float, keys: int, shift: float = 0.0) -> None:
        weights = (np.arange(1, keys + 1, dtype=np.float64) + shift) ** -exponent
        cumulative = np.cumsum(weights, out=weights)
        cumulative /= cumulative[-1]
        # A power of two, so that `u * cells` is exact and a cell's two bounds hold for every u in it.
        cells = 1 << max((keys // KEYS_PER_CELL).bit_length(), 1)
        guide = np.searchsorted(cumulative, np.arange(cells + 1) / cells, side="right")
        self.cumulative: Floats = cumulative
        self._guide = np.minimum(guide, keys - 1).astype(np.int32)
        self._cells = cells
        for array in (self.cumulative, self._guide):
            array.setflags(write=False)  # tables are shared by all who ask for them

    @property
    def shares(self) -> Floats:
        """float64[keys]: the share of rows of each rank."""
        return np.diff(self.cumulative, prepend=0.0)

    def ranks(self, uniform: Floats) -> Ints:
        """int64[n]: the rank of each number of [0, 1): the first whose cumulative share is above it."""
        cell = (uniform * self._cells).astype(np.int64)
        low, high = self._guide.take(cell), self._guide.take(cell + 1)
        found = low.astype(np.int64)
        still = np.flatnonzero(low < high)
        low, high, wanted = low[still], high[still], uniform[still]
        while len(still):
            middle = (low + high) >> 1
            above = self.cumulative.take(middle) > wanted
            high = np.where(above, middle, high)
            low = np.where(above, low, middle + 1)
            found[still] = low
            unsure = low < high
            still, low, high, wanted = still[unsure], low[unsure], high[unsure], wanted[unsure]
        return found


@lru_cache(maxsize=6)
def rank_table(exponent: float, keys: int, shift: float = 0.0) -> RankTable:
    """A table that is built once in a process: 10^7 keys take 100 MB and part of a second."""
    return RankTable(exponent, keys, shift)

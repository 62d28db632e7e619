"""Random numbers that depend on a seed, a name and a row number alone, so any row can be made by itself."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats

Bits = np.ndarray[Any, np.dtype[np.uint64]]

# The constants of splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_WORD = (1 << 64) - 1


def mixed(words: Bits) -> Bits:
    """The finishing hash of splitmix64: a bijection of 64-bit words that looks random.

    >>> mixed(np.array([0, 1], dtype=np.uint64)).tolist()
    [0, 6238072747940578789]
    """
    z = words ^ (words >> np.uint64(30))
    z *= _FIRST
    z ^= z >> np.uint64(27)
    z *= _SECOND
    z ^= z >> np.uint64(31)
    return z


class Draws:
    """Independent random columns for the given rows: one stream of numbers for each column's name.

    Row n of stream s is a hash of (seed, s, n): it is the same whichever rows are asked for beside it.

    Parameters
    ----------
    seed
        Any whole number; another seed gives other columns.
    rows
        uint64[n]: row numbers, in any order.

    Examples
    --------
    >>> whole = Draws(7, np.arange(10, dtype=np.uint64)).uniform("fare")
    >>> part = Draws(7, np.arange(4, 6, dtype=np.uint64)).uniform("fare")
    >>> bool((whole[4:6] == part).all())
    True
    """

    def __init__(self, seed: int, rows: Bits) -> None:
        self.seed = seed
        self._steps = rows * _GOLDEN  # wraps around, as splitmix64 means it to

    def bits(self, stream: str) -> Bits:
        """uint64[n]: 64 random bits a row."""
        return mixed(self._steps + _origin(self.seed, stream))

    def uniform(self, stream: str) -> Floats:
        """float64[n]: evenly spread over [0, 1)."""
        return (self.bits(stream) >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))

    def integers(self, stream: str, below: int) -> Ints:
        """int64[n]: whole numbers from 0 to `below` - 1, for `below` up to 2^32."""
        return (((self.bits(stream) >> np.uint64(32)) * np.uint64(below)) >> np.uint64(32)).astype(np.int64)

    def happens(self, stream: str, share: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """bool[n]: True for about `share` of the rows."""
        return np.asarray(self.uniform(stream) < share)

    def distributed(self, stream: str, quantiles: Floats) -> Floats:
        """float64[n]: drawn by a table of quantiles (see `quantile_table`), linear between its points.

        Only additions and products touch a row. Logarithms and cosines may differ in their last bit between
        a vectorised loop and its remainder, and then rows would depend on how they were sliced.
        """
        place = self.uniform(stream) * (len(quantiles) - 1)
        cell = place.astype(np.int64)
        low = quantiles.take(cell)
        return np.asarray(low + (quantiles.take(cell + 1) - low) * (place - cell))


def quantile_table(quantile: Callable[[float], float], cells: int = 2048) -> Floats:
    """float64[cells + 1]: `quantile` at even steps; its two ends are cut off half a cell before 0 and 1.

    >>> quantile_table(lambda p: 10 * p, cells=4).round(2).tolist()
    [1.25, 2.5, 5.0, 7.5, 8.75]
    """
    inside = 0.5 / cells
    steps = (min(max(i / cells, inside), 1 - inside) for i in range(cells + 1))
    return np.fromiter((quantile(p) for p in steps), dtype=np.float64, count=cells + 1)


def _origin(seed: int, stream: str) -> np.uint64:
    """Where a stream begins in splitmix64's sequence: streams are far apart, so they do not overlap."""
    word = np.array([seed & _WORD, zlib.crc32(stream.encode())], dtype=np.uint64)
    first = mixed(word[:1] + _GOLDEN)
    return np.uint64(mixed(first ^ (word[1:] * _FIRST))[0])


def java_uniform(seed: int) -> Iterator[float]:
    """What `nextDouble` of `java.util.Random` gives, by the formula that its documentation prescribes.

    >>> [round(share, 6) for share, _ in zip(java_uniform(42), range(3))]
    [0.727564, 0.683223, 0.308719]
    """
    state, mask = (seed ^ 0x5DEECE66D) & ((1 << 48) - 1), (1 << 48) - 1
    while True:
        state = (state * 0x5DEECE66D + 0xB) & mask
        high = state >> 22
        state = (state * 0x5DEECE66D + 0xB) & mask
        yield ((high << 27) + (state >> 21)) * 2.0**-53

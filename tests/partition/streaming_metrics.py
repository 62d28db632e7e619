"""What routes cost over sliding windows: imbalance and aggregation (Zapridou et al. 2022, Eq 1 and 2).

A window is known by its last slide; it has the `window / slide` slides up to that one. A partial is a pair of key
and block that has rows in the window; at every slide each partial of the window is sent to its key's reducer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats, at_least_one_block


def imbalance(loads: Ints) -> Floats:
    """Eq 1, for loads of shape [..., blocks]: the largest load less the mean.

    >>> imbalance(np.array([[4, 2, 0], [1, 1, 1]])).tolist()
    [2.0, 0.0]
    """
    return np.asarray(np.max(loads, axis=-1) - np.mean(loads, axis=-1))


@dataclass(frozen=True, eq=False)
class RoutedWindows:
    """Rows, where they were sent, and the windows over them.

    Parameters
    ----------
    keys, block, times
        One of each a row; times never fall.
    blocks
        Number of blocks, n.
    window, slide
        In the unit of the times.

    Examples
    --------
    >>> keys, block = np.array([1, 1, 2, 1]), np.array([0, 1, 0, 0])
    >>> windows = RoutedWindows(keys, block, times=np.arange(4), blocks=2, window=2, slide=1)
    >>> windows.loads.tolist()
    [[1, 0], [1, 1], [1, 1], [2, 0]]
    >>> windows.partials(reducers=1).ravel().tolist(), windows.partials(reducers=1, forwarding=True).ravel().tolist()
    ([1, 2, 2, 2], [0, 2, 0, 0])
    """

    keys: Ints
    block: np.ndarray[Any, np.dtype[np.int32]]
    times: Ints
    blocks: int
    window: int
    slide: int

    def __post_init__(self) -> None:
        at_least_one_block(self.blocks)
        if not len(self.keys) == len(self.block) == len(self.times):
            raise ValueError(
                f"{len(self.keys)} keys, {len(self.block)} blocks and {len(self.times)} times: one per row"
            )

    @cached_property
    def panes(self) -> int:
        """Slides in a window."""
        return -(-self.window // self.slide)

    @cached_property
    def _slide_of(self) -> Ints:
        slides = np.asarray(self.times, dtype=np.int64) // self.slide
        return slides - slides[0] if len(slides) else slides

    @cached_property
    def slides(self) -> int:
        """How many slides there are, from the first row's to the last row's, and so how many windows."""
        return int(self._slide_of[-1]) + 1 if len(self.keys) else 0

    @cached_property
    def loads(self) -> Ints:
        """int64[slides, blocks]: rows of each window in each block, L."""
        code = self._slide_of * self.blocks + self.block
        own = np.bincount(code, minlength=self.slides * self.blocks).reshape(self.slides, self.blocks)
        return _over_windows(own.astype(np.int64), self.panes)

    @cached_property
    def largest_share(self) -> Floats:
        """float64[slides]: share of the fullest block in the rows of each window."""
        rows = self.loads.sum(axis=1)
        return np.asarray(self.loads.max(axis=1, initial=0) / np.maximum(rows, 1))

    @cached_property
    def _changes(self) -> tuple[Ints, Ints, Ints]:
        """Where partials come and go: key position, window, and +1 or -1; sorted by key, then by window."""
        key = np.unique(np.asarray(self.keys, dtype=np.int64), return_inverse=True)[1]
        pair = key * self.blocks + self.block
        rows = np.unique(np.stack([pair, self._slide_of], axis=1), axis=0) if len(pair) else np.empty((0, 2), np.int64)
        of, start = rows[:, 0], rows[:, 1]
        # rows of a slide hold the pair in the windows from there on, until the pair's next rows or for `panes`
        following = np.r_[np.where(of[1:] == of[:-1], start[1:], self.slides), np.full(min(1, len(of)), self.slides)]
        stop = np.minimum(start + self.panes, following)
        key = np.r_[of, of] // self.blocks
        at = np.r_[start, stop]
        sign = np.r_[np.ones(len(of), np.int64), -np.ones(len(of), np.int64)]
        order = np.lexsort((at, key))
        return key[order], at[order], sign[order]

    def fragmentation(self, key: int) -> Ints:
        """int64[slides]: blocks that have the key in each window, ||X(k)||."""
        position = np.searchsorted(np.unique(self.keys), key)
        of, at, sign = self._changes
        mine = of == position if np.any(np.asarray(self.keys) == key) else np.zeros(len(of), np.bool_)
        change = np.zeros(self.slides + 1, np.int64)
        np.add.at(change, at[mine], sign[mine])
        return np.cumsum(change)[:-1]

    def partials(self, reducers: int, *, forwarding: bool = False) -> Ints:
        """int64[slides, reducers]: partials of each window at each reducer, which the key's id chooses.

        With forwarding, only keys that are in several blocks in the window go through the reducers.
        """
        of, at, sign = self._changes
        reducer = np.unique(np.asarray(self.keys, dtype=np.int64))[of] % reducers
        if forwarding:
            held = np.cumsum(sign)  # every key comes and goes whole, so sums never leak from key to key
            last = np.r_[(of[1:] != of[:-1]) | (at[1:] != at[:-1]), np.ones(min(1, len(of)), np.bool_)]
            of, at, reducer, held = of[last], at[last], reducer[last], held[last]
            shown = np.where(held > 1, held, 0)
            before = np.r_[0, shown[:-1]][: len(shown)]
            first = np.r_[np.ones(min(1, len(of)), np.bool_), of[1:] != of[:-1]]
            sign = shown - np.where(first, 0, before)
        change = np.zeros((self.slides + 1, reducers), np.int64)
        np.add.at(change, (at, reducer), sign)
        return np.cumsum(change, axis=0)[:-1]

    def aggregation_cost(self, reducers: int, *, forwarding: bool = False) -> Ints:
        """int64[slides]: Eq 2, partials at the busiest reducer of each window."""
        return np.asarray(self.partials(reducers, forwarding=forwarding).max(axis=1, initial=0))

    @cached_property
    def top_key(self) -> int:
        """The most frequent key of all rows."""
        keys, rows = np.unique(self.keys, return_counts=True)
        return int(keys[np.argmax(rows)])


def _over_windows(own: Ints, panes: int) -> Ints:
    """Sums of the last `panes` lines at each line."""
    total = np.cumsum(own, axis=0)
    total[panes:] -= total[:-panes].copy()
    return total

"""Heavy hitters: keys that alone exceed a block's fair share (Zapridou et al. 2022, definition 3.3)."""

from __future__ import annotations

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import at_least_one_block
from steelyard.core.policies import Flags


def heavy_hitters(rows: Ints, blocks: int, load: int | None = None) -> Flags:
    """bool[len(rows)]: whether each key has at least `load / blocks` rows, `f(k) >= Lambda / n`.

    With the keys' own total as the load there are never more than `blocks` of them (theorem 3.4): x keys of at
    least `load / blocks` rows each have `x * load / blocks` rows together, and there are only `load`. While an
    interval runs, its load is not known, and Dalton takes that of the interval before.

    Parameters
    ----------
    rows
        Frequencies, one per key.
    blocks
        n in the paper.
    load
        Lambda; the sum of the frequencies where it is not given.

    Examples
    --------
    >>> heavy_hitters(np.array([60, 25, 10, 5]), blocks=4).tolist()
    [True, True, False, False]
    """
    at_least_one_block(blocks)
    counts = np.asarray(rows, dtype=np.int64)
    total = int(counts.sum()) if load is None else load
    return np.asarray((counts >= -(-total // blocks)) & (counts > 0))


def hot_until(time: int, stats_window: int) -> int:
    """The last time at which a key is hot that crossed the threshold at `time`: the end of the next interval.

    >>> hot_until(1_500, stats_window=1_000)   # in the interval [1000, 2000)
    2999
    """
    return (time // stats_window + 2) * stats_window - 1

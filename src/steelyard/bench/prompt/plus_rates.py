"""Rates that are sustained, from what batches of several sizes take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

LEAST = 0.001
"""Seconds by which the largest batch takes longer than the smallest, at least: clocks are noisy."""
WARM_UP = 0.3
"""The share of a run's batches before the ones that count."""

Taken = dict[str, dict[int, list[float]]]
"""Seconds of a batch: by way, rows of a batch, and round."""


def apart(ends: Sequence[float]) -> float:
    """Seconds from the end of a batch to that of the next while batches stand behind it.

    The last one does not count. In groups ahead a slot begins with the next batch while another worker still maps this
    one, so that a batch ends up to one map task later than it could; nothing holds the last one up, and it ends with
    the one before it.

    >>> apart([0.0, 1.0, 2.0, 3.0, 4.0, 4.0])
    1.0
    """
    first = int(len(ends) * WARM_UP)
    return (ends[-2] - ends[first]) / (len(ends) - 2 - first)


def sustained(seconds: Mapping[int, float], interval: float) -> tuple[float, bool]:
    """Rows per second at which a batch takes just its interval, between measured sizes; and whether beyond them.

    >>> sustained({100: 0.02, 200: 0.03, 400: 0.05}, 0.04)
    (7500.0, False)
    >>> sustained({100: 0.02, 200: 0.03}, 0.01)
    (0.0, False)
    """
    sizes = sorted(seconds)
    times = np.maximum.accumulate([seconds[size] for size in sizes])
    if times[0] > interval:
        return 0.0, False
    if times[-1] >= interval:
        return float(np.interp(interval, times, sizes)) / interval, False
    per_row = max(times[-1] - times[0], LEAST) / (sizes[-1] - sizes[0])
    return float((sizes[-1] + (interval - times[-1]) / per_row) / interval), True


def ratios(taken: Taken, ours: str, other: str, interval: float) -> list[float]:
    """The rate of one way over that of another at an interval, round by round; without end where that has none.

    >>> ratios({"a": {100: [0.1, 0.1], 200: [0.2, 0.2]}, "b": {100: [0.2, 0.4], 200: [0.4, 0.8]}}, "a", "b", 0.4)
    [2.0, 4.0]
    """
    rounds = len(next(iter(taken[ours].values())))
    found = []
    for turn in range(rounds):
        mine, theirs = (
            sustained({rows: times[turn] for rows, times in taken[name].items()}, interval)[0] for name in (ours, other)
        )
        found.append(mine / theirs if theirs else math.inf)
    return found

"""A search for near vectors that looks only at those that are near in one coordinate.

Rows whose measure stays under a cut are not farther apart in any coordinate than `reach_of` says. So the rows of one
side are sorted by their widest coordinate, and each row of the other side has its partners in a stretch of them. In few
dimensions, or where the threshold is small, that stretch is short; in many it is nearly everything.
"""

from __future__ import annotations

import math

import numpy as np

from steelyard.kernels.distance import EUCLIDEAN, Pairs, Vectors, within_stretches


def reach_of(kind: int, cut: float) -> float:
    """How far apart two rows may be in any one coordinate if their measure is to stay under a cut.

    A sum of numbers that are not negative is never below one of them, not even after rounding.

    >>> round(reach_of(EUCLIDEAN, 4.0), 6)
    2.0
    """
    return (math.sqrt(cut) if kind <= EUCLIDEAN else cut) * (1 + 1e-9)


def within_sweep(kind: int, left: Vectors, right: Vectors, t: float, cut: float, share: float) -> Pairs | None:
    """The pairs within `t` of one block; None where more than a share of all pairs would have to be looked at."""
    if not right.shape[1]:
        return None
    reach = reach_of(kind, cut)
    axis = int(np.argmax(np.ptp(right.astype(np.float64, copy=False), axis=0)))
    order = np.argsort(right[:, axis], kind="stable")
    line, mine = right[order, axis].astype(np.float64), left[:, axis].astype(np.float64)
    room = reach + 1e-15 * (np.abs(mine) + reach)  # the ends of a stretch are rounded, too
    starts, ends = np.searchsorted(line, mine - room), np.searchsorted(line, mine + room, side="right")
    if (ends - starts).sum() > share * len(left) * len(right):
        return None
    i, j, distances = within_stretches(kind, left, right[order], starts, ends, t, cut)
    return i, order[j], distances

"""Order of small whole numbers, for tasks: NumPy counts 16 bits, and sorts distinct numbers by vector instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
_WIDEST = 63
"""Bits of a number that is not negative."""


def stable_order(codes: np.ndarray[Any, Any], count: int) -> Ints:
    """int64[len(codes)]: where the codes, all of them from 0 to `count` - 1, are in ascending order; ties as they come.

    >>> stable_order(np.array([2, 0, 2, 1]), 3).tolist()
    [1, 3, 0, 2]
    """
    if count <= 1 << 16:
        return np.argsort(codes.astype(np.uint16, copy=False), kind="stable")
    bits = len(codes).bit_length()
    if (count - 1).bit_length() + bits > _WIDEST:
        return np.argsort(codes, kind="stable")
    places = (codes.astype(np.int64) << bits) | np.arange(len(codes))  # no two are equal, so that any sort is stable
    places.sort()
    return np.asarray(places & ((1 << bits) - 1))

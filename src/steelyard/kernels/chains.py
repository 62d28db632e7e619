"""Rows by key as linked lists in arrays: each key's newest row, and behind each row the one before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]

NONE = -1
"""No row."""


@njit()
def link(slots: Ints, first: int, newest: Ints, before: Ints, length: Ints) -> None:
    """Put rows `first`, `first + 1` … at the head of their keys' lists, in place."""
    for i in range(len(slots)):
        slot = slots[i]
        before[first + i] = newest[slot]
        newest[slot] = first + i
        length[slot] += 1


@njit()
def matches(slots: Ints, newest: Ints, before: Ints, asking: Ints, found: Ints) -> None:
    """All rows of each slot: `asking[m]` is the position in `slots`, `found[m]` the row, newest first.

    >>> newest, before, length = np.full(2, NONE), np.empty(3, np.int64), np.zeros(2, np.int64)
    >>> link(np.array([1, 0, 1]), 0, newest, before, length)
    >>> asking, found = np.empty(2, np.int64), np.empty(2, np.int64)
    >>> matches(np.array([1]), newest, before, asking, found)
    >>> asking.tolist(), found.tolist()
    ([0, 0], [2, 0])
    """
    at = 0
    for i in range(len(slots)):
        row = newest[slots[i]]
        while row != NONE:
            asking[at] = i
            found[at] = row
            at += 1
            row = before[row]

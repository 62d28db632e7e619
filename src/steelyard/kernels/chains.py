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
    """All rows of each slot: `asking[m]` is the position in `slots`, `found[m]` the row, newest first."""
    at = 0
    for i in range(len(slots)):
        row = newest[slots[i]]
        while row != NONE:
            asking[at] = i
            found[at] = row
            at += 1
            row = before[row]


def matches_plain(slots: Ints, rows_of: dict[int, list[int]]) -> list[tuple[int, int]]:
    """The plain twin of `link` and `matches`, from the rows of each slot in the order they came.

    >>> matches_plain(np.array([1, 0]), {1: [4, 5]})
    [(0, 5), (0, 4)]
    """
    return [(i, row) for i, slot in enumerate(slots.tolist()) for row in reversed(rows_of.get(slot, []))]

"""SpaceSaving: the frequent keys of a stream, in a fixed number of counters.

Metwally, Agrawal, El Abbadi 2005, "Efficient computation of frequent and top-k elements in data streams". Of N
rows and m counters: a key's count is never below its true number of rows, the count minus its error is never
above it, no error is above N / m, and a key with more than N / m rows has a counter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.key_table import NONE, KeyTable, Slots, find, key_table, remove, slot_of

Ints = np.ndarray[Any, np.dtype[np.int64]]

COUNT, ERROR, SLOT = range(3)
"""Columns of `Summary.counters`."""
FILLED, ROWS = range(2)
"""Positions in `Summary.seen`."""


class Summary(NamedTuple):
    """Counters in descending order. One more row moves a counter at most to the front of those equal to it."""

    counters: Ints
    """int64[counters, 3]: rows of the counter's key, how many of them may be too many (what the counter showed
    when its key took it over), and the slot of the key in the table."""
    place: Ints
    """int64[slots]: the counter of each slot."""
    seen: Ints
    """int64[2]: counters in use, and rows seen."""


def summary(counters: int) -> tuple[KeyTable, Summary]:
    """An empty summary and the table of its keys.

    >>> table, top = summary(2)
    >>> for key in (7, 7, 8, 9, 7):
    ...     place = observe(*table, *top, key)
    >>> entries(table, top)
    [(7, 3, 0), (9, 2, 1)]
    """
    empty = Summary(np.zeros((counters, 3), np.int64), np.zeros(counters, np.int64), np.zeros(2, np.int64))
    return key_table(counters), empty


@njit()
def observe(cells: Slots, ids: Ints, header: Ints, counters: Ints, place: Ints, seen: Ints, key: int) -> int:
    """Count one row; the place of its key's counter, which every key has after its row."""
    seen[ROWS] += 1
    slot = find(cells, ids, key)
    if slot != NONE:
        at = place[slot]
    else:
        if seen[FILLED] < len(counters):
            at = seen[FILLED]
            seen[FILLED] += 1
        else:  # the smallest counter goes over to the new key
            at = len(counters) - 1
            counters[at, ERROR] = counters[at, COUNT]
            remove(cells, ids, header, ids[counters[at, SLOT]])
        slot = slot_of(cells, ids, header, key)
        counters[at, SLOT] = slot
        place[slot] = at
    return _increment(counters, place, at)


@njit()
def _increment(counters: Ints, place: Ints, at: int) -> int:
    """Add one to a counter and keep the order, by trading places with the first of those equal to it."""
    count, error, slot = counters[at, COUNT], counters[at, ERROR], counters[at, SLOT]
    low, high = 0, at
    while low < high:
        middle = (low + high) // 2
        if counters[middle, COUNT] > count:
            low = middle + 1
        else:
            high = middle
    counters[at, ERROR] = counters[low, ERROR]
    counters[at, SLOT] = counters[low, SLOT]
    place[counters[at, SLOT]] = at
    counters[low, COUNT] += 1
    counters[low, ERROR] = error
    counters[low, SLOT] = slot
    place[slot] = low
    return low


def entries(table: KeyTable, top: Summary) -> list[tuple[int, int, int]]:
    """(key, count, error) of every counter in use, the largest count first."""
    used = top.counters[: top.seen[FILLED]]
    keys = table.ids[used[:, SLOT]]
    return list(zip(keys.tolist(), used[:, COUNT].tolist(), used[:, ERROR].tolist(), strict=True))

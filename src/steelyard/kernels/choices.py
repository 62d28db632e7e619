"""The less loaded of several candidate blocks, row by row.

A key's candidates are its hash block and then independent hashes of it (`candidate`). Of candidates that are
equal the later one is taken, as the published two-choices partitioner does it: the first must be strictly better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.key_table import KeyTable
from steelyard.kernels.mixing import home, mix
from steelyard.kernels.sliding import END, SlidingLoads, advance
from steelyard.kernels.space_saving import COUNT, ERROR, FILLED, ROWS, Summary, observe

Ints = np.ndarray[Any, np.dtype[np.int64]]
Blocks = np.ndarray[Any, np.dtype[np.int32]]

BY_INEQUALITIES = 0
"""For `choices` of head keys: as many as the two inequalities of D-Choices ask for."""
UPPER, AS_COUNTED, LOWER = 1, 0, -1
"""What a head key is judged by: count + error, count, or count - error."""
CHOICES, DUE = 0, 1
"""Positions in `HeadChoices.plan`."""


@njit(inline="always")
def candidate(key: int, number: int, blocks: int) -> int:
    """The `number`-th candidate of a key: its hash block first, then independent ones.

    >>> [candidate(7, number, 5) for number in range(4)]
    [2, 2, 4, 1]
    """
    if number == 0:
        return home(key, blocks)
    return int(np.int64(mix(key, number) % np.uint64(blocks)))  # or the two kinds of integers would meet as floats


@njit()
def route_home(keys: Ints, blocks: int, block: Blocks) -> None:
    """The hash block of each key."""
    for row in range(len(keys)):
        block[row] = home(keys[row], blocks)


@njit()
def route_in_turn(first: int, blocks: int, block: Blocks) -> None:
    """Blocks in turn, beginning with `first`."""
    where = first % blocks
    for row in range(len(block)):
        block[row] = where
        where += 1
        if where == blocks:
            where = 0


@njit()
def route_two(keys: Ints, times: Ints, block: Blocks, loads: SlidingLoads, slide: int) -> None:
    """The less loaded of two candidates: `route_many` with two, faster.

    The choice is arithmetic, not a jump: it is as good as random, so a processor would guess it wrong half the
    time. Unsigned numbers spare the test for negative positions.
    """
    totals, clock = loads.totals, loads.clock
    end = clock[END]
    for row in range(len(keys)):
        if times[row] >= end:
            advance(loads, slide, times[row])
            end = clock[END]
        first = np.uint64(home(keys[row], len(totals)))
        second = mix(keys[row], 1) % np.uint64(len(totals))
        rows_first, rows_second = totals[first], totals[second]
        where = second ^ ((first ^ second) * np.uint64(rows_first < rows_second))
        totals[where] = min(rows_first, rows_second) + 1
        block[row] = where


@njit()
def route_many(keys: Ints, times: Ints, block: Blocks, loads: SlidingLoads, slide: int, choices: int) -> None:
    """The least loaded of `choices` candidates."""
    totals, clock = loads.totals, loads.clock
    end = clock[END]
    for row in range(len(keys)):
        if times[row] >= end:
            advance(loads, slide, times[row])
            end = clock[END]
        where = least_loaded(totals, keys[row], choices)
        totals[where] += 1
        block[row] = where


@njit()
def least_loaded(totals: Ints, key: int, choices: int) -> int:
    """The least loaded of a key's first `choices` candidates, the last of those that are equal."""
    best = np.uint64(home(key, len(totals)))
    least = totals[best]
    for number in range(1, choices):
        where = mix(key, number) % np.uint64(len(totals))
        rows = totals[where]
        best ^= (best ^ where) * np.uint64(rows <= least)
        least = min(rows, least)
    return int(np.int64(best))


@njit()
def least_loaded_of_all(totals: Ints) -> int:
    """The least loaded block, the first of those that are equal."""
    best = 0
    for where in range(1, len(totals)):
        if totals[where] < totals[best]:
            best = where
    return best


class HeadChoices(NamedTuple):
    """How many candidates a head key has now."""

    plan: Ints
    """int64[2]: the number, and the number of rows seen at which it is computed again."""


@njit()
def route_head(
    keys: Ints,
    times: Ints,
    block: Blocks,
    loads: SlidingLoads,
    slide: int,
    table: KeyTable,
    top: Summary,
    head: HeadChoices,
    choices: int,
    threshold: float,
    judged: int,
    tolerance: float,
    refresh: int,
) -> None:
    """Head keys have `choices` candidates (all blocks from `blocks` on), the others two.

    A key is in the head while its estimate is above `threshold` of the rows seen.
    """
    totals, clock = loads.totals, loads.clock
    cells, ids, header = table
    counters, place, seen = top
    plan = head.plan
    end = clock[END]
    for row in range(len(keys)):
        if times[row] >= end:
            advance(loads, slide, times[row])
            end = clock[END]
        at = observe(cells, ids, header, counters, place, seen, keys[row])
        if choices == BY_INEQUALITIES and seen[ROWS] >= plan[DUE]:
            plan[CHOICES] = _head_choices(counters, seen, len(totals), threshold, judged, tolerance)
            plan[DUE] = seen[ROWS] + min(seen[ROWS], refresh)
        many = plan[CHOICES] if choices == BY_INEQUALITIES else choices
        in_head = counters[at, COUNT] + judged * counters[at, ERROR] > threshold * seen[ROWS]
        if in_head and many >= len(totals):
            where = least_loaded_of_all(totals)
        else:
            where = least_loaded(totals, keys[row], many if in_head else 2)
        totals[where] += 1
        block[row] = where


@njit()
def _head_choices(counters: Ints, seen: Ints, blocks: int, threshold: float, judged: int, tolerance: float) -> int:
    size, share, largest = 0, 0.0, 0.0
    for at in range(seen[FILLED]):
        estimate = (counters[at, COUNT] + judged * counters[at, ERROR]) / seen[ROWS]
        if estimate > threshold:
            size += 1
            share += estimate
            largest = max(largest, estimate)
    return choices_needed(blocks, size, min(share, 1.0), min(largest, 1.0), tolerance)


@njit()
def choices_needed(blocks: int, size: int, share: float, largest: float, tolerance: float) -> int:
    """How many candidates keep a head of `size` keys balanced: the smallest d that satisfies both inequalities.

    Nasir, De Francisci Morales, Kourtellis, Serafini 2016, section IV. With the head's share p_H, the tail's
    p_T, the most frequent key's p_1, v = 1 - ((n - 1) / n)^d and V = 1 - ((n - 1) / n)^(|H| d):

        p_H + p_T V^2                     <= V + tolerance
        p_1 + (p_H - p_1) v^d + p_T v^2   <= v + tolerance
    """
    missed = (blocks - 1) / blocks
    tail = 1.0 - share
    needed = max(2, round(largest * blocks))
    while needed < blocks:
        one = 1.0 - missed**needed
        whole = 1.0 - missed ** (size * needed)
        fits_whole = share + tail * whole**2 <= whole + tolerance
        fits_one = largest + (share - largest) * one**needed + tail * one**2 <= one + tolerance
        if fits_whole and fits_one:
            break
        needed += 1
    return needed

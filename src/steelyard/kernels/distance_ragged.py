"""Distances of records that differ in length: Jaccard on sets of ids, Hamming on sequences, compiled.

Records lie one after the other in `values`; record `i` is `values[starts[i]:starts[i + 1]]`. Distances are quotients
of whole numbers, rounded once: they do not depend on any order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.distance import Floats, Ints, Pairs, keep, room

Values = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]

JACCARD, HAMMING = range(2)

_FIRST_ROOM = 256
_MOST_PARTS, _LEAST_SHARE = 1 << 26, 2.0**-26
"""Quotients of whole numbers up to the first differ by more than what rounding does to them."""
_PATIENCE = 64
"""Places after which a sequence that differs in too many is given up."""


@njit()
def sort_sets(values: Values, starts: Ints) -> None:
    """Sort the ids of each set, in place."""
    for i in range(len(starts) - 1):
        values[starts[i] : starts[i + 1]].sort()


@njit()
def gathered(values: Values, starts: Ints, index: Ints, ends: Ints) -> Values:
    """The values of the records at `index`, one after the other, where the new record i ends at `ends[i + 1]`."""
    found = np.empty(ends[-1], dtype=values.dtype)
    for i in range(len(index)):
        start = starts[index[i]]
        for p in range(ends[i + 1] - ends[i]):
            found[ends[i] + p] = values[start + p]
    return found


@njit()
def jaccard_of(common: int, first: int, second: int) -> float:
    """1 - |A n B| / |A u B|, of sets with so many members; two empty sets are equal."""
    union = first + second - common
    if union == 0:
        return 0.0
    return (union - common) / union


@njit()
def _jaccard(left: Values, a: int, a_end: int, right: Values, b: int, b_end: int, t: float) -> float:
    first, second = a_end - a, b_end - b
    longer, shorter = max(first, second), min(first, second)
    if longer > 0 and (longer - shorter) / longer > t:  # no two sets of these sizes are nearer
        return np.inf
    common = 0
    while a < a_end and b < b_end:
        if left[a] == right[b]:
            common += 1
            a += 1
            b += 1
        elif left[a] < right[b]:
            a += 1
        else:
            b += 1
    return float(jaccard_of(common, first, second))


@njit()
def _hamming(left: Values, a: int, a_end: int, right: Values, b: int, b_end: int, t: float) -> float:
    length = a_end - a
    if length != b_end - b:
        return 1.0
    if length == 0:
        return 0.0
    different = 0
    for start in range(0, length, _PATIENCE):
        for k in range(start, min(start + _PATIENCE, length)):
            different += left[a + k] != right[b + k]
        if different / length > t:
            return np.inf
    return different / length


@njit()
def _distance(kind: int, left: Values, a: int, a_end: int, right: Values, b: int, b_end: int, t: float) -> float:
    """The distance, or anything larger than `t` where it is larger than `t`."""
    if kind == JACCARD:
        return float(_jaccard(left, a, a_end, right, b, b_end, t))
    return float(_hamming(left, a, a_end, right, b, b_end, t))


@njit()
def pairwise(kind: int, left: Values, left_starts: Ints, right: Values, right_starts: Ints) -> Floats:
    """float64[n, m]: the distance of every record on the left and every record on the right.

    >>> values, starts = np.array([1, 2, 3, 4, 1, 2, 3, 5]), np.array([0, 4, 8])
    >>> [pairwise(kind, values, starts, values, starts).tolist() for kind in (JACCARD, HAMMING)]
    [[[0.0, 0.4], [0.4, 0.0]], [[0.0, 0.25], [0.25, 0.0]]]
    """
    table = np.empty((len(left_starts) - 1, len(right_starts) - 1), dtype=np.float64)
    for i in range(table.shape[0]):
        a, a_end = left_starts[i], left_starts[i + 1]
        for j in range(table.shape[1]):
            table[i, j] = _distance(kind, left, a, a_end, right, right_starts[j], right_starts[j + 1], np.inf)
    return table


@njit()
def of_rows(kind: int, left: Values, left_starts: Ints, i: Ints, right: Values, right_starts: Ints, j: Ints) -> Floats:
    """float64[len(i)]: the distance of record `i[p]` on the left and record `j[p]` on the right."""
    found = np.empty(len(i), dtype=np.float64)
    for p in range(len(i)):
        a, b = i[p], j[p]
        found[p] = _distance(
            kind, left, left_starts[a], left_starts[a + 1], right, right_starts[b], right_starts[b + 1], np.inf
        )
    return found


@njit()
def within_groups(
    kind: int,
    left: Values,
    left_starts: Ints,
    left_groups: Ints,
    right: Values,
    right_starts: Ints,
    right_groups: Ints,
    t: float,
) -> Pairs:
    """The pairs within `t` of records `left_groups[g]:left_groups[g+1]` with those of the group on the right."""
    lefts, rights, distances = room(_FIRST_ROOM)
    count = 0
    for g in range(len(left_groups) - 1):
        for i in range(left_groups[g], left_groups[g + 1]):
            a, a_end = left_starts[i], left_starts[i + 1]
            for j in range(right_groups[g], right_groups[g + 1]):
                distance = _distance(kind, left, a, a_end, right, right_starts[j], right_starts[j + 1], t)
                if distance <= t:
                    lefts, rights, distances = keep(lefts, rights, distances, count, i, j, distance)
                    count += 1
    return lefts[:count], rights[:count], distances[:count]


@njit()
def _postings(values: Values, starts: Ints, ids: int) -> tuple[Ints, Values]:
    """For each id the sets that it is in, one id after the other."""
    heads = np.zeros(ids + 1, dtype=np.int64)
    for value in values:
        heads[value + 1] += 1
    for k in range(ids):
        heads[k + 1] += heads[k]
    holders = np.empty(len(values), dtype=np.int32)
    filled = heads[:-1].copy()
    for j in range(len(starts) - 1):
        for p in range(starts[j], starts[j + 1]):
            holders[filled[values[p]]] = j
            filled[values[p]] += 1
    return heads, holders


@njit()
def jaccard_within(left: Values, right: Values, ids: int, left_starts: Ints, right_starts: Ints, t: float) -> Pairs:
    """The pairs of sets within `t < 1`, by an index of which set holds which of the ids 0 to `ids - 1`.

    Sets without a common member are at distance 1 and never met, except two empty ones, which are at 0.
    """
    lefts, rights, distances = room(_FIRST_ROOM)
    count = 0
    heads, holders = _postings(right, right_starts, ids)
    common = np.zeros(len(right_starts) - 1, dtype=np.int64)
    met = np.empty(len(right_starts) - 1, dtype=np.int64)
    for i in range(len(left_starts) - 1):
        size = left_starts[i + 1] - left_starts[i]
        touched = 0
        if size == 0:
            for j in range(len(common)):
                if right_starts[j] == right_starts[j + 1]:
                    met[touched] = j
                    touched += 1
        for p in range(left_starts[i], left_starts[i + 1]):
            for q in range(heads[left[p]], heads[left[p] + 1]):
                j = holders[q]
                if common[j] == 0:
                    met[touched] = j
                    touched += 1
                common[j] += 1
        for k in range(touched):
            j = met[k]
            distance = jaccard_of(common[j], size, right_starts[j + 1] - right_starts[j])
            common[j] = 0
            if distance <= t:
                lefts, rights, distances = keep(lefts, rights, distances, count, i, j, distance)
                count += 1
    return lefts[:count], rights[:count], distances[:count]


@njit()
def _quotient(whole: int, power: int) -> tuple[int, int]:
    """`2 ** power // whole` and the rest, where the power itself need not fit 64 bits."""
    start = min(power, 62)
    quotient, rest = (1 << start) // whole, (1 << start) % whole
    for _ in range(power - start):
        quotient, rest = 2 * quotient, 2 * rest
        if rest >= whole:
            quotient, rest = quotient + 1, rest - whole
    return quotient, rest


@njit()
def shares_left(distances: Floats) -> Floats:
    """float64[n]: (n - k) / n, rounded once, of distances that are k / n, rounded once, with n below 2 ** 26.

    `1 - distance` would be rounded twice: 1 - 0.9 is less than 0.1. Among the convergents of the distance's continued
    fraction k / n is the first that is rounded to it; of a distance that is no such quotient 1 - distance is told.
    """
    found = np.empty(len(distances), dtype=np.float64)
    for p in range(len(distances)):
        distance = distances[p]
        found[p] = 1.0 - distance
        if not _LEAST_SHARE < distance < 1.0:
            continue
        mantissa, exponent = math.frexp(distance)
        whole = int(math.ldexp(mantissa, 53))
        quotient, rest = _quotient(whole, 53 - exponent)
        before, top, below, bottom = 0, 1, 1, quotient  # k / n of two convergents: 0 / 1, 1 / quotient
        while bottom < _MOST_PARTS:
            if top / bottom == distance:
                found[p] = (bottom - top) / bottom
                break
            if rest == 0 or whole // rest > _MOST_PARTS:
                break
            quotient, whole, rest = whole // rest, rest, whole % rest
            before, top = top, quotient * top + before
            below, bottom = bottom, quotient * bottom + below
    return found

"""Distances of vectors, compiled: one fixed order of arithmetic for each pair, whatever block it is found in.

A pair's *measure* is the sum, or the largest, of its coordinates' differences (squares for the angular and the
Euclidean distance); its *distance* is a function of the measure. Both are defined by the loops below and by
nothing else, so that a pair has the same distance, to the bit, in every block and in either order. Searches
compare measures with a `cut` that no pair within the threshold exceeds, and only then settle by the distance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Vectors = np.ndarray[Any, Any]
"""float32[n, d] or float64[n, d]"""
Pairs = tuple[Ints, Ints, Floats]
"""Positions on the left, positions on the right, and distances."""

ANGULAR, EUCLIDEAN, MANHATTAN, CHEBYSHEV = range(4)

_LARGE, _SMALL = 1e100, 1e-100
"""Beyond these a vector is scaled by a power of two before it is squared."""
_TINY = 1e-280
"""Sums of squares below this may have lost some of them to the smallest numbers that there are."""
_FIRST_ROOM = 256
"""Pairs that there is room for at first."""
_STRIP = 64
"""Products that are looked at together."""
_CHUNK = 128
"""Columns whose measures are summed side by side."""
_PATIENCE = 16
"""Coordinates after which a chunk is given up if none of its pairs can still be within the threshold."""


@njit(inline="always")
def sum_squares(x: Vectors, i: int, y: Vectors, j: int, sign: float) -> float:
    """The sum of `(x[i] + sign * y[j]) ** 2`, in eight lanes and then the rest in order."""
    dimension = x.shape[1]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    whole = dimension - dimension % 8
    for k in range(0, whole, 8):
        e0 = np.float64(x[i, k]) + sign * np.float64(y[j, k])
        e1 = np.float64(x[i, k + 1]) + sign * np.float64(y[j, k + 1])
        e2 = np.float64(x[i, k + 2]) + sign * np.float64(y[j, k + 2])
        e3 = np.float64(x[i, k + 3]) + sign * np.float64(y[j, k + 3])
        e4 = np.float64(x[i, k + 4]) + sign * np.float64(y[j, k + 4])
        e5 = np.float64(x[i, k + 5]) + sign * np.float64(y[j, k + 5])
        e6 = np.float64(x[i, k + 6]) + sign * np.float64(y[j, k + 6])
        e7 = np.float64(x[i, k + 7]) + sign * np.float64(y[j, k + 7])
        s0 += e0 * e0
        s1 += e1 * e1
        s2 += e2 * e2
        s3 += e3 * e3
        s4 += e4 * e4
        s5 += e5 * e5
        s6 += e6 * e6
        s7 += e7 * e7
    total = ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7))
    for k in range(whole, dimension):
        e = np.float64(x[i, k]) + sign * np.float64(y[j, k])
        total += e * e
    return total


@njit(inline="always")
def _sum_absolute(x: Vectors, i: int, y: Vectors, j: int) -> float:
    dimension = x.shape[1]
    s0 = s1 = s2 = s3 = 0.0
    whole = dimension - dimension % 4
    for k in range(0, whole, 4):
        s0 += abs(np.float64(x[i, k]) - np.float64(y[j, k]))
        s1 += abs(np.float64(x[i, k + 1]) - np.float64(y[j, k + 1]))
        s2 += abs(np.float64(x[i, k + 2]) - np.float64(y[j, k + 2]))
        s3 += abs(np.float64(x[i, k + 3]) - np.float64(y[j, k + 3]))
    total = (s0 + s2) + (s1 + s3)
    for k in range(whole, dimension):
        total += abs(np.float64(x[i, k]) - np.float64(y[j, k]))
    return total


@njit(inline="always")
def _largest(x: Vectors, i: int, y: Vectors, j: int) -> float:
    largest = 0.0
    for k in range(x.shape[1]):
        e = abs(np.float64(x[i, k]) - np.float64(y[j, k]))
        largest = max(largest, e)
    return largest


@njit(inline="always")
def measure_of(kind: int, x: Vectors, i: int, y: Vectors, j: int) -> float:
    """The measure of rows `i` and `j`; for the angular distance the rows are unit vectors (see `units`)."""
    if kind <= EUCLIDEAN:  # or angular
        return float(sum_squares(x, i, y, j, -1.0))
    if kind == MANHATTAN:
        return float(_sum_absolute(x, i, y, j))
    return float(_largest(x, i, y, j))


@njit()
def _scaled_root(x: Vectors, i: int, y: Vectors, j: int) -> float:
    """The root of the sum of squared differences that are too small to be squared as they are."""
    largest = 0.0
    for k in range(x.shape[1]):
        largest = max(largest, abs(np.float64(x[i, k]) - np.float64(y[j, k])))
    if largest == 0.0:
        return 0.0
    _, exponent = math.frexp(largest)
    total = 0.0
    for k in range(x.shape[1]):
        e = math.ldexp(np.float64(x[i, k]) - np.float64(y[j, k]), -exponent)
        total += e * e
    return math.ldexp(math.sqrt(total), exponent)


@njit(inline="always")
def distance_of(kind: int, measure: float, x: Vectors, i: int, y: Vectors, j: int) -> float:
    """The distance of a pair whose measure is known.

    The angle of unit vectors u and v is 2 atan(|u - v| / |u + v|): accurate everywhere, and exactly 0 for equal,
    a half for orthogonal and 1 for opposite ones, which the arc cosine of u.v is not.
    """
    if kind > EUCLIDEAN:
        return measure
    root = math.sqrt(measure) if measure >= _TINY else _scaled_root(x, i, y, j)
    if kind == EUCLIDEAN:
        return root
    return 2.0 * math.atan2(root, math.sqrt(sum_squares(x, i, y, j, 1.0))) / math.pi


@njit()
def units(records: Vectors) -> Floats:
    """float64[n, d]: each row divided by its length; a row of zeros stays as it is.

    >>> units(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    rows, dimension = records.shape
    unit = np.empty((rows, dimension), dtype=np.float64)
    origin = np.zeros((1, dimension), dtype=np.float64)
    for i in range(rows):
        largest = 0.0
        for k in range(dimension):
            unit[i, k] = records[i, k]
            largest = max(largest, abs(unit[i, k]))
        if largest > 0.0 and (largest > _LARGE or largest < _SMALL):  # or the squares would be inf or 0
            _, exponent = math.frexp(largest)
            for k in range(dimension):
                unit[i, k] = math.ldexp(unit[i, k], -exponent)
        length = math.sqrt(sum_squares(unit, i, origin, 0, 1.0))
        if length > 0.0:
            for k in range(dimension):
                unit[i, k] /= length
    return unit


@njit()
def cosines(angles: Floats) -> Floats:
    """float64[n]: the cosine distance 1 - cos of angles in half turns, of small ones as 2 sin^2 of the half."""
    found = np.empty(len(angles), dtype=np.float64)
    for p in range(len(angles)):
        if angles[p] <= 0.25:
            half = math.sin(math.pi * angles[p] / 2)
            found[p] = 2.0 * half * half
        else:
            found[p] = 1.0 - math.sin(math.pi * (0.5 - angles[p]))  # a cosine that is exactly 0 at a half
    return found


def cut_of(kind: int, t: float) -> float:
    """A measure that no pair at a distance of at most `t` exceeds, and hardly any other pair stays under.

    >>> cut_of(MANHATTAN, 0.5), round(cut_of(EUCLIDEAN, 2.0), 9), cut_of(ANGULAR, 1.0)
    (0.5, 4.0, inf)
    """
    if kind == ANGULAR:
        if t >= 1.0:
            return math.inf
        square = 4.0 * math.sin(math.pi * t / 2) ** 2 if t > 0 else 0.0
        # Towards opposite vectors it is |u + v| that counts, which |u - v| tells with an absolute error only.
        return square * (1 + 1e-11) + (1e-11 if t >= 0.49 else _TINY)
    if kind == EUCLIDEAN:
        return min(t, 1e160) ** 2 * (1 + 1e-11) + _TINY if t < 1e160 else math.inf
    return t


@njit()
def pairwise(kind: int, left: Vectors, right: Vectors) -> Floats:
    """float64[n, m]: the distance of every row on the left and every row on the right.

    >>> pairwise(EUCLIDEAN, np.array([[0.0, 3.0]]), np.array([[4.0, 0.0], [0.0, 3.0]])).tolist()
    [[5.0, 0.0]]
    """
    table = np.empty((len(left), len(right)), dtype=np.float64)
    for i in range(len(left)):
        for j in range(len(right)):
            table[i, j] = distance_of(kind, measure_of(kind, left, i, right, j), left, i, right, j)
    return table


@njit()
def of_rows(kind: int, left: Vectors, i: Ints, right: Vectors, j: Ints) -> Floats:
    """float64[len(i)]: the distance of row `i[p]` on the left and row `j[p]` on the right."""
    found = np.empty(len(i), dtype=np.float64)
    for p in range(len(i)):
        found[p] = distance_of(kind, measure_of(kind, left, i[p], right, j[p]), left, i[p], right, j[p])
    return found


@njit()
def room(pairs: int) -> Pairs:
    """Empty arrays for so many pairs."""
    return np.empty(pairs, np.int64), np.empty(pairs, np.int64), np.empty(pairs, np.float64)


@njit(inline="always")
def keep(lefts: Ints, rights: Ints, distances: Floats, count: int, i: int, j: int, distance: float) -> Pairs:
    """The arrays with one pair more, at `count`: the same ones, or copies with twice the room."""
    if count == len(lefts):
        more_lefts, more_rights, more_distances = room(2 * count)
        more_lefts[:count] = lefts
        more_rights[:count] = rights
        more_distances[:count] = distances
        lefts, rights, distances = more_lefts, more_rights, more_distances
    lefts[count] = i
    rights[count] = j
    distances[count] = distance
    return lefts, rights, distances


@njit()
def within_stretches(kind: int, left: Vectors, right: Vectors, starts: Ints, ends: Ints, t: float, cut: float) -> Pairs:
    """The pairs within `t` of each row `i` on the left with the rows `starts[i]` until before `ends[i]`.

    Every pair is written down, and the place of the next one moves on if it stays: there is no branch to guess wrong.
    """
    lefts, rights, distances = room(_FIRST_ROOM)
    count = 0
    for i in range(len(left)):
        width = ends[i] - starts[i]
        if count + width > len(lefts):
            more_lefts, more_rights, more_distances = room(max(2 * len(lefts), count + width))
            more_lefts[:count] = lefts[:count]
            more_rights[:count] = rights[:count]
            more_distances[:count] = distances[:count]
            lefts, rights, distances = more_lefts, more_rights, more_distances
        near = count
        for j in range(starts[i], ends[i]):
            measure = measure_of(kind, left, i, right, j)
            rights[near] = j
            distances[near] = measure
            near += measure <= cut
        kept = count
        for place in range(count, near):
            j = rights[place]
            distance = distance_of(kind, distances[place], left, i, right, j)
            lefts[kept] = i
            rights[kept] = j
            distances[kept] = distance
            kept += distance <= t
        count = kept
    return lefts[:count], rights[:count], distances[:count]


@njit()
def _add_column(kind: int, value: float, column: Floats, sums: Floats) -> None:
    if kind == MANHATTAN:
        for c in range(len(column)):
            sums[c] += abs(value - column[c])
    elif kind == CHEBYSHEV:
        for c in range(len(column)):
            e = abs(value - column[c])
            sums[c] = e if e > sums[c] else sums[c]
    else:
        for c in range(len(column)):
            e = value - column[c]
            sums[c] += e * e


@njit()
def _count_up_to(sums: Floats, width: int, cut: float) -> int:
    hits = 0
    for c in range(width):
        hits += sums[c] <= cut
    return hits


@njit()
def within_columns(kind: int, left: Vectors, right: Vectors, columns: Vectors, t: float, loose: float) -> Pairs:
    """The pairs within `t` of one block, by sums over many rows of the right at a time.

    `columns` is `right` transposed. The sums are taken in another order than the measures, so `loose` is the
    cut and what that order may add; those that pass are settled by their distance.
    """
    lefts, rights, distances = room(_FIRST_ROOM)
    count = 0
    dimension = columns.shape[0]
    sums = np.empty(_CHUNK, dtype=np.float64)
    for first in range(0, len(right), _CHUNK):
        width = min(_CHUNK, len(right) - first)
        for i in range(len(left)):
            sums[:] = 0.0
            hits = width
            for k in range(dimension):
                _add_column(kind, np.float64(left[i, k]), columns[k, first : first + width], sums)
                if k % _PATIENCE == _PATIENCE - 1 or k == dimension - 1:
                    hits = _count_up_to(sums, width, loose)
                    if hits == 0:
                        break
            if hits == 0:
                continue
            for c in range(width):
                if sums[c] <= loose:
                    j = first + c
                    distance = distance_of(kind, measure_of(kind, left, i, right, j), left, i, right, j)
                    if distance <= t:
                        lefts, rights, distances = keep(lefts, rights, distances, count, i, j, distance)
                        count += 1
    return lefts[:count], rights[:count], distances[:count]


@njit()
def scan_products(
    kind: int,
    products: Vectors,
    row_cut: Vectors,
    column_cut: Vectors,
    row: int,
    column: int,
    left: Vectors,
    right: Vectors,
    t: float,
    cut: float,
    lefts: Ints,
    rights: Ints,
    distances: Floats,
    count: int,
) -> tuple[Ints, Ints, Floats, int, int]:
    """Look through a tile of products for `products[r, c] >= row_cut + column_cut`; settle those by their distance.

    The tile starts at `row` and `column`. The last of what is given back is how many pairs had to be settled.
    """
    rows, width = products.shape
    settled = 0
    for r in range(rows):
        least = row_cut[row + r]
        for start in range(0, width, _STRIP):
            end = min(start + _STRIP, width)
            hits = np.int32(0)
            for c in range(start, end):
                hits += np.int32(products[r, c] - column_cut[column + c] >= least)
            if hits == 0:
                continue
            settled += int(hits)
            for c in range(start, end):
                if products[r, c] - column_cut[column + c] >= least:
                    i, j = row + r, column + c
                    measure = measure_of(kind, left, i, right, j)
                    if measure <= cut:
                        distance = distance_of(kind, measure, left, i, right, j)
                        if distance <= t:
                            lefts, rights, distances = keep(lefts, rights, distances, count, i, j, distance)
                            count += 1
    return lefts, rights, distances, count, settled

"""The plain twins of `distance`: the same order of arithmetic, one pair at a time."""

from __future__ import annotations

import math

import numpy as np

from steelyard.kernels.distance import _LARGE, _SMALL, _TINY, CHEBYSHEV, EUCLIDEAN, MANHATTAN, Floats, Vectors


def _lanes_plain(terms: list[float], lanes: int) -> float:
    sums = [0.0] * lanes
    whole = len(terms) - len(terms) % lanes
    for k in range(whole):
        sums[k % lanes] += terms[k]
    half = lanes // 2
    folded = [sums[lane] + sums[lane + half] for lane in range(half)]
    total = folded[0] + folded[1] if half == 2 else (folded[0] + folded[1]) + (folded[2] + folded[3])
    for term in terms[whole:]:
        total += term
    return total


def units_plain(records: Vectors) -> Floats:
    """The plain twin of `units`.

    >>> units_plain(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    unit = np.array(records, dtype=np.float64)
    for row in unit:
        largest = float(np.max(np.abs(row), initial=0.0))
        if largest > 0.0 and (largest > _LARGE or largest < _SMALL):
            row[:] = [math.ldexp(value, -math.frexp(largest)[1]) for value in row.tolist()]
        length = math.sqrt(_lanes_plain([value * value for value in row.tolist()], 8))
        if length > 0.0:
            row[:] = [value / length for value in row.tolist()]
    return unit


def distance_plain(kind: int, x: Vectors, y: Vectors) -> float:
    """The plain twin of `distance_of` over `measure_of`, of two rows.

    >>> distance_plain(EUCLIDEAN, np.array([0.0, 3.0]), np.array([4.0, 0.0]))
    5.0
    """
    first, second = [float(value) for value in x], [float(value) for value in y]
    differences = [abs(a - b) for a, b in zip(first, second, strict=True)]
    if kind == MANHATTAN:
        return _lanes_plain(differences, 4)
    if kind == CHEBYSHEV:
        return max(differences, default=0.0)
    measure = _lanes_plain([e * e for e in differences], 8)
    root = math.sqrt(measure)
    if measure < _TINY and any(differences):
        exponent = math.frexp(max(differences))[1]
        total = 0.0
        for e in (math.ldexp(difference, -exponent) for difference in differences):
            total += e * e  # e ** 2 and `sum` may round otherwise
        root = math.ldexp(math.sqrt(total), exponent)
    if kind == EUCLIDEAN:
        return root
    sums = [(a + b) * (a + b) for a, b in zip(first, second, strict=True)]
    return 2.0 * math.atan2(root, math.sqrt(_lanes_plain(sums, 8))) / math.pi


def within_plain(kind: int, left: Vectors, right: Vectors, t: float) -> list[tuple[int, int, float]]:
    """The plain twin of every search here: the pairs within `t` of one block, by row and column."""
    table = [[distance_plain(kind, x, y) for y in right] for x in left]
    return [(i, j, d) for i, row in enumerate(table) for j, d in enumerate(row) if d <= t]

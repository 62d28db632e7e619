"""What the paper proves of the greedy scheduler and of the sketch's estimates, as functions to check against.

Rivetti et al. 2016, section 4. The paper writes k for the number of columns in section 4.2; here it is `columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import fsum

MOST_ITEMS = 20
"""For `expected_estimate`, which looks at every subset of the items."""


def greedy_ratio(instances: int) -> float:
    """Theorem 4.2: the greedy makespan is at most `2 - 1/k` times the best one.

    >>> greedy_ratio(5)
    1.8
    """
    return 2.0 - 1.0 / instances


def greedy_bound(times: Sequence[float], instances: int) -> float:
    """Eq 2: what the greedy makespan of these tuples cannot exceed, `sum w / k + max w (1 - 1/k)`.

    >>> greedy_bound([1.0, 1.0, 2.0], 2)
    3.0
    """
    return fsum(times) / instances + max(times, default=0.0) * (1.0 - 1.0 / instances)


def least_makespan(times: Sequence[float], instances: int) -> float:
    """Eq 3 and 4: what no schedule's makespan can fall below, the larger of `sum w / k` and `max w`.

    >>> least_makespan([1.0, 1.0, 2.0], 2)
    2.0
    """
    return max(fsum(times) / instances, max(times, default=0.0))


def greedy_makespan(times: Sequence[float], instances: int) -> float:
    """The makespan of the greedy scheduler with exact times.

    >>> greedy_makespan([1.0, 1.0, 2.0], 2)
    3.0
    """
    loads = [0.0] * instances
    for time in times:
        loads[loads.index(min(loads))] += time
    return max(loads)


def worst_case(instances: int, longest: float = 1.0) -> list[float]:
    """Tuples for which the greedy scheduler is as bad as Theorem 4.2 allows; the best makespan is `longest`.

    >>> greedy_makespan(worst_case(4), 4) == greedy_ratio(4)
    True
    """
    return [longest / instances] * (instances * (instances - 1)) + [longest]


def expected_estimate_of_equals(times: Sequence[float], item: int, columns: int) -> float:
    """Theorem 4.3: the mean of W/F over hash functions, in one row, where all items are equally frequent.

    With S the sum of the times, `(S - w) / (n - 1) - c (S - n w) / (n (n - 1)) (1 - (1 - 1/c)^n)`.

    >>> round(expected_estimate_of_equals([1, 5, 2, 9, 4, 7], item=1, columns=3), 9)
    4.782441701
    """
    n, own = len(times), times[item]
    if n == 1:
        return float(own)
    total = fsum(times)
    alone = 1.0 - (1.0 - 1.0 / columns) ** n
    return (total - own) / (n - 1) - columns * (total - n * own) / (n * (n - 1)) * alone


def expected_estimate(frequencies: Sequence[float], times: Sequence[float], item: int, columns: int) -> float:
    """The mean of W/F over hash functions, in one row, for any frequencies: a sum over all sets of items that collide.

    >>> round(expected_estimate([1] * 6, [1, 5, 2, 9, 4, 7], item=1, columns=3), 9)
    4.782441701
    """
    n = len(times)
    if n > MOST_ITEMS:
        raise ValueError(f"{n} items have 2^{n - 1} sets that may collide: give at most {MOST_ITEMS}")
    others = [other for other in range(n) if other != item]
    parts = []
    for size in range(n):
        share = (1.0 / columns) ** size * (1.0 - 1.0 / columns) ** (n - 1 - size)
        for colliding in combinations(others, size):
            cell = (item, *colliding)
            count = fsum(frequencies[one] for one in cell)
            parts.append(share * fsum(frequencies[one] * times[one] for one in cell) / count)
    return fsum(parts)

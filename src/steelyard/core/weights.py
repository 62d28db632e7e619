"""Weights of a route: how many rows of an edge each receiving instance gets, where rows are dealt out in turn.

They are whole numbers, one for each instance: of (3, 1, 0) the first gets three rows of four, and the last none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.topology import Topology

Ends = tuple[str, str]
"""Sender and receiver of an edge."""
Weights = Mapping[Ends, tuple[int, ...]]
"""By edge: one weight per receiving instance."""
MOST_ROWS = 10_000
"""Of a cycle: the sum of the weights of an edge, once what divides all of them is taken out."""


def lowest(weights: Sequence[int]) -> tuple[int, ...]:
    """The same proportions in the smallest numbers; ValueError where they are no weights.

    >>> lowest([6, 2, 0])
    (3, 1, 0)
    >>> lowest([0, 0])
    Traceback (most recent call last):
    ValueError: weights are whole numbers from 0 on, not all 0, got [0, 0]
    """
    whole = all(isinstance(one, int | np.integer) and not isinstance(one, bool) and one >= 0 for one in weights)
    if not whole or not any(weights):
        raise ValueError(f"weights are whole numbers from 0 on, not all 0, got {list(weights)}")
    divisor = gcd(*map(int, weights))
    found = tuple(int(one) // divisor for one in weights)
    if max(found) > 1 and sum(found) > MOST_ROWS:
        raise ValueError(f"weights come to {MOST_ROWS:,} together at most, got {sum(found):,}: give smaller numbers")
    return found


@lru_cache(maxsize=64)
def dealt(weights: tuple[int, ...]) -> Ints:
    """One cycle of smooth weighted round robin: the instance of each row, as many times as its weight, spread out.

    With every row each instance gains its weight; the one that has most, the first of equals, gets the row, and pays
    for it with the sum of all weights.

    >>> dealt((3, 1)).tolist(), dealt((1, 1, 1)).tolist()
    ([0, 0, 1, 0], [0, 1, 2])
    """
    each = np.array(lowest(weights))
    total, gained = int(each.sum()), np.zeros(len(each), np.int64)
    order = np.arange(total)
    for row in range(total if each.max() > 1 or total < len(each) else 0):  # each in turn where all are 1
        gained += each
        order[row] = best = int(gained.argmax())
        gained[best] -= total
    order.flags.writeable = False
    return order


def weighed(there: Topology[Any, Any], has: Callable[[Any], bool]) -> dict[Ends, int]:
    """The edges that have weights, and how many instances each leads to; `has` tells it of one edge."""
    found: dict[Ends, bool] = {}
    for edge in there.edges:
        ends = edge.sender, edge.receiver
        found[ends] = found.get(ends, True) and has(edge)
    return {ends: there.by_name[ends[1]].parallelism for ends, weighs in found.items() if weighs}


def require_weights(there: Topology[Any, Any], has: Callable[[Any], bool], weights: Weights) -> None:
    """OptionError where an edge is not there, has no weights, or leads to another number of instances."""
    labels = {(edge.sender, edge.receiver): edge.label for edge in there.edges}
    fits = weighed(there, has)
    for ends, each in weights.items():
        edge = " -> ".join(ends)
        if ends not in labels:
            known = ", ".join(" -> ".join(one) for one in fits) or "none"
            raise OptionError(f"there is no edge {edge}; those with weights: {known}")
        if ends not in fits:
            raise OptionError(
                f"edge {edge} has no weights, since {labels[ends]!r} chooses instances by something else: only rows "
                "that are dealt out in turn have them, by shuffle() or round_robin"
            )
        if len(each) != fits[ends]:
            raise OptionError(f"edge {edge} leads to {fits[ends]} instances, got {len(each)} weights: {each}")
        try:
            lowest(each)
        except ValueError as error:
            raise OptionError(f"edge {edge}: {error}") from error


def shown_weights(
    there: Topology[Any, Any], has: Callable[[Any], bool], weights: Weights
) -> dict[Ends, tuple[int, ...]]:
    """By edge that has weights: those that hold, which are all 1 where none are given or these do not fit."""
    fits = weighed(there, has)
    given = {ends: weights.get(ends, ()) for ends in fits}
    return {ends: given[ends] if len(given[ends]) == number else (1,) * number for ends, number in fits.items()}

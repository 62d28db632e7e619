"""Times of several ways to do the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

K = TypeVar("K")


def in_turns(
    actions: Mapping[K, Callable[[], object]], turns: int, clock: Callable[[], float] = time.perf_counter
) -> dict[K, list[float]]:
    """Seconds of each action in every turn. They take turns, so that a slow moment of the machine hits all of them.

    >>> [len(times) for times in in_turns({"a": list, "b": dict}, 3).values()]
    [3, 3]
    """
    taken: dict[K, list[float]] = {name: [] for name in actions}
    for _ in range(turns):
        for name, action in actions.items():
            begun = clock()
            action()
            taken[name].append(clock() - begun)
    return taken

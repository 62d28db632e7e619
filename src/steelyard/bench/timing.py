"""Times of several ways to do the same."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

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


def processor_seconds(call: Callable[[], object], times: int, repetitions: int = 7) -> float:
    """Processor time of a call: the median over repetitions of so many calls each."""
    call()
    taken = []
    for _ in range(repetitions):
        begun = time.process_time()
        for _ in range(times):
            call()
        taken.append((time.process_time() - begun) / times)
    return statistics.median(taken)


class Line(NamedTuple):
    """What something takes at least, and what each more of something adds."""

    start: float
    slope: float


def line_of(sizes: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line through two points; never below nothing.

    >>> line_of([1, 11], [3.0, 8.0])
    Line(start=2.5, slope=0.5)
    """
    (small, large), (short, long) = sizes, seconds
    slope = max((long - short) / (large - small), 0.0)
    return Line(max(short - slope * small, 0.0), slope)

"""What Kubernetes' horizontal autoscaler does with any metric: a ratio, and the highest wish of a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil

import numpy as np

from steelyard.core import Observation, OptionError, State
from steelyard.core.clock import Clock

WINDOW = 300.0
"""Seconds for which a wish counts (Siachamis 2024, section 4)."""
_DIGITS = 9


def for_target(instances: int, metric: float, target: float) -> int:
    """Eq 4.4: as many instances as bring a metric that is shared among them to its target.

    >>> for_target(4, 0.9, 0.7), for_target(4, 0.7, 0.7), for_target(4, 0.0, 0.7)
    (6, 4, 1)
    """
    return max(1, ceil(round(instances * metric / target, _DIGITS)))


class Highest:
    """Of the numbers of instances that were wished for in a while, the highest of each operator.

    A rise is so done at once, and a fall when nobody wished for more for as long as the window is.

    Parameters
    ----------
    seconds
        Length of the window.

    Examples
    --------
    >>> highest = Highest(300.0)
    >>> [highest.of(time, {"map": wish})["map"] for time, wish in [(0, 6), (15, 3), (300, 3), (315, 3)]]
    [6, 6, 6, 3]
    """

    def __init__(self, seconds: float) -> None:
        if not seconds >= 0:
            raise OptionError(f"window of wishes must be 0 seconds or more, got {seconds!r}")
        self.seconds, self.clock = seconds, Clock()
        self._wishes: deque[tuple[float, Mapping[str, int]]] = deque()

    def jumped(self, seen: Observation) -> str:
        """What is wrong with the moment of a look; where the clock jumped, what was wished before is forgotten."""
        if why := self.clock.jumped(seen):
            self._wishes.clear()
        return why

    def of(self, time: float, wished: Mapping[str, int]) -> dict[str, int]:
        """The highest wishes, with those of now."""
        self._wishes.append((time, wished))
        while self._wishes[0][0] < time - self.seconds:
            self._wishes.popleft()
        return {name: max(one.get(name, 0) for _, one in self._wishes) for name in wished}

    def state(self) -> State:
        """Wishes by moment and operator."""
        names = sorted({name for _, one in self._wishes for name in one})
        rows = [(time, names.index(name), wish) for time, one in self._wishes for name, wish in one.items()]
        return {
            "names": np.array(names, dtype=np.str_),
            "wishes": np.array(rows, dtype=np.float64).reshape(-1, 3),
            "clock": self.clock.array,
        }

    def restore(self, state: State) -> None:
        """Go on from that."""
        self.clock = Clock.of(state["clock"])
        names, found = state["names"].tolist(), dict[float, dict[str, int]]()
        for time, number, wish in state["wishes"].tolist():
            found.setdefault(time, {})[names[int(number)]] = int(wish)
        self._wishes = deque(found.items())

"""What the autoscaler of Flink remembers beside its looks: restarts, what is to shrink, what was promised."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan

import numpy as np

from steelyard.core import State
from steelyard.core.plans import Floats

RESTARTS = 3
"""Restarts that are remembered: as many decisions as Flink keeps."""


@dataclass
class Restarts:
    """How long restarts took, and since when the job runs as it does now.

    A restart begins with the decision that asks for it and ends with the first look at which the job works with other
    numbers of instances. It is not measured where looks were left out in between.
    """

    since: float = nan
    """From then on it runs with its numbers of instances; not known before the first look."""
    asked: float = nan
    """When somebody asked for other numbers; not a number where nobody did."""
    looked: float = nan
    """The end of the newest look, at which perhaps nothing could be seen."""
    took: deque[float] = field(default_factory=lambda: deque(maxlen=RESTARTS))
    parallelism: dict[str, int] = field(default_factory=dict)

    def begin(self, time: float, seconds: float, parallelism: Mapping[str, int]) -> bool:
        """A look at which the job works; whether it has other numbers of instances than before."""
        if self.parallelism == parallelism:
            self.looked = time
            return False
        first, watched = not self.parallelism, time - seconds <= self.looked + seconds / 2
        if not first and watched and time > self.asked:
            self.took.append(time - self.asked)
        # where looks were left out, it may have worked since it was asked to change
        self.since = time - seconds if first or watched or not time > self.asked else self.asked
        self.parallelism, self.looked, self.asked = dict(parallelism), time, nan
        return not first

    def seconds(self, configured: float, learnt: bool, most: float) -> float:
        """How long a restart is expected to take."""
        return min(max(self.took), most) if learnt and self.took else configured

    @property
    def array(self) -> Floats:
        """Moments and durations."""
        return np.array([self.since, self.asked, self.looked, *self.took])


class Shrinking:
    """Operators that are to have fewer instances, since when, and the numbers that were asked for.

    Several wishes become one, the highest of the time that they wait.

    Parameters
    ----------
    seconds
        For which a wish waits.

    Examples
    --------
    >>> shrinking = Shrinking(3600.0)
    >>> [shrinking.due("map", time, wish) for time, wish in [(0.0, 4), (1800.0, 6), (3600.0, 3)]]
    [None, None, 6]
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: dict[str, float] = {}
        self._wishes: dict[str, deque[tuple[float, int]]] = {}

    def due(self, name: str, time: float, wish: int) -> int | None:
        """A wish for fewer; how many there shall be now, if it has waited long enough."""
        self._since.setdefault(name, time)
        wishes = self._wishes.setdefault(name, deque())
        wishes.append((time, wish))
        while wishes[0][0] < time - self.seconds:
            wishes.popleft()
        return max(wish for _, wish in wishes) if time - self._since[name] >= self.seconds else None

    def forget(self, name: str) -> None:
        """It is to stay, or to grow, or has shrunk."""
        self._since.pop(name, None)
        self._wishes.pop(name, None)

    def clear(self) -> None:
        """Forget all."""
        self._since, self._wishes = {}, {}

    def state(self) -> State:
        """As arrays."""
        names = sorted(self._since)
        wishes = [(number, *one) for number, name in enumerate(names) for one in self._wishes[name]]
        return {
            "shrinking": np.array(names, dtype=np.str_),
            "since": np.array([self._since[name] for name in names], dtype=np.float64),
            "wishes": np.array(wishes, dtype=np.float64).reshape(-1, 3),
        }

    def restore(self, state: State) -> None:
        """Go on from that."""
        names = state["shrinking"].tolist()
        self._since = dict(zip(names, state["since"].tolist(), strict=True))
        self._wishes = {name: deque() for name in names}
        for number, time, wish in state["wishes"].tolist():
            self._wishes[names[int(number)]].append((time, int(wish)))


@dataclass
class Promises:
    """What each operator's newest growth was to bring, and whether it did.

    An operator of which one promise was broken does not grow any further until it has shrunk.
    """

    made: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Instances and what they could do together, before an operator grew."""
    broken: set[str] = field(default_factory=set)

    def grows(self, name: str, instances: int, rate: float) -> None:
        """An operator of so many instances, which can do so many rows per second, gets more."""
        self.made[name] = instances, rate

    def forget(self, name: str) -> None:
        """It gets fewer: nothing is promised."""
        self.made.pop(name, None)
        self.broken.discard(name)

    def look(self, name: str, instances: int, rate: float, share: float) -> bool:
        """Whether growing is of no use, now that so many instances can do so many rows per second.

        More instances should bring more in proportion; less than `share` of that is a promise that was broken.
        """
        if name in self.made:
            before, could = self.made[name]
            if instances > before:
                del self.made[name]
                if rate - could < share * could * (instances / before - 1):
                    self.broken.add(name)
        return name in self.broken

    def state(self) -> State:
        """As arrays."""
        names = sorted(self.made)
        return {
            "promised": np.array(names, dtype=np.str_),
            "promises": np.array([self.made[name] for name in names], dtype=np.float64).reshape(-1, 2),
            "broken": np.array(sorted(self.broken), dtype=np.str_),
        }

    @classmethod
    def of(cls, state: State) -> Promises:
        """Those that gave this state."""
        made = zip(state["promised"].tolist(), state["promises"].tolist(), strict=True)
        return cls({name: (int(count), rate) for name, (count, rate) in made}, set(state["broken"].tolist()))

"""How long a rescale stops a job: learnt from those that were done, against the state that there was."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import nan

import numpy as np

from steelyard.core import Observation, State
from steelyard.core.plans import Floats

KEPT = 12
"""Rescales that are remembered."""
GIVEN = 1.0
"""Rescales that what was given beforehand counts for."""
_GIGA = 1e9


@dataclass
class Rescales:
    """Seconds of standstill of each rescale, and the bytes of state at that time.

    A rescale begins when it is asked for. It ends within the first look at which other numbers of instances work: for
    as much of that look as they say that they worked or waited for others, it was over. One that is not seen is not
    learnt.

    Parameters
    ----------
    seconds, per_gigabyte
        What is believed before any was seen.

    Examples
    --------
    >>> learnt = Rescales(30.0, 10.0)
    >>> for state, took in [(0, 20.0), (4e9, 60.0), (8e9, 100.0), (0, 20.0), (4e9, 60.0)]:
    ...     learnt.took.append((state, took))
    >>> round(learnt.expected(2e9)), round(Rescales(30.0, 10.0).expected(2e9))
    (42, 50)
    """

    seconds: float
    per_gigabyte: float
    took: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    asked: float = nan
    state: float = 0.0
    """When a rescale was asked for, and the bytes of state then."""

    def ask(self, time: float, state: float) -> None:
        """One begins."""
        self.asked, self.state = time, state

    def watch(self, seen: Observation, changed: bool, working: bool) -> bool:
        """A look at which there are other numbers of instances than when it was asked for, or not. Whether it is over.

        Parameters
        ----------
        seen
            The look.
        changed
            Whether there are other numbers.
        working
            Whether sources read rows in it.
        """
        if not (changed and working and seen.time > self.asked):
            return False
        sources = [one for one in seen.operators if not one.received_from]
        worked = max((one.busy + one.backpressured for one in sources), default=1.0)
        idle = any(one.idle > 1e-3 and one.processed_per_second > 0 for one in sources) and worked < 1e-3
        over = seen.seconds * (1.0 if idle else min(worked, 1.0))
        self.took.append((self.state, max(seen.time - over - self.asked, 0.0)))
        self.asked = nan
        return True

    def expected(self, state: float) -> float:
        """Seconds that one will take with so many bytes of state."""
        bytes_, seconds = np.array([*self.took]).reshape(-1, 2).T
        gigabytes = bytes_ / _GIGA
        # least squares with what was given as if it had been seen: once without state, and once for a gigabyte
        causes = np.stack([np.ones(len(gigabytes)), gigabytes])
        given = np.array([self.seconds, self.per_gigabyte])
        left = causes @ causes.T + GIVEN * np.eye(2)
        fixed, each = np.linalg.solve(left, causes @ seconds + GIVEN * given)
        return float(max(fixed, 0.0) + max(each, 0.0) * state / _GIGA)

    def saved(self) -> State:
        """As arrays."""
        taken: Floats = np.array(self.took, dtype=np.float64).reshape(-1, 2)
        return {"rescales": taken, "asked": np.array([self.asked, self.state])}

    def restore(self, state: State) -> None:
        """Go on from that."""
        self.took = deque(((one, took) for one, took in state["rescales"].tolist()), maxlen=KEPT)
        self.asked, self.state = state["asked"].tolist()

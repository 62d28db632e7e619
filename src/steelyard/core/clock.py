"""The moment of the newest look at a job, by which it is seen that its clock jumped."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from steelyard.core.control import Observation
from steelyard.core.plans import Floats

JUMP = 10.0
"""A look at operators over more than so many times the time of the look before is a jump of the clock."""


@dataclass
class Clock:
    """When the newest look was, and over how long.

    The controller has one, and does nothing at a look where the clock jumped, whatever engine and policy there are. A
    policy that remembers looks has one to know that what it remembers counts no more, also after a restart.

    Looks at operators follow each other in time and are over the time since the one before, more or less. Those at
    batches are over the time that a batch took, as long as that may be, and two may end at the same moment.

    Examples
    --------
    >>> clock = Clock()
    >>> [clock.jumped(Observation(time, 15.0)) for time in (15.0, 30.0, 20.0)]
    ['', '', 'the clock jumped from 30 s to 20 s']
    """

    time: float = -inf
    seconds: float = inf

    def jumped(self, seen: Observation) -> str:
        """What is wrong with the moment of a look, if anything is; then it is the newest, if it is one at all."""
        of_operators = bool(seen.operators)
        stands = seen.seconds < 0 or (of_operators and seen.seconds == 0)
        if stands or not (isfinite(seen.time) and isfinite(seen.seconds)):
            return f"the clock jumped: this is said to be a look at {seen.time:g} s over {seen.seconds:g} s"
        before, usual = self.time, self.seconds
        self.time, self.seconds = seen.time, seen.seconds
        if seen.time < before or (of_operators and seen.time == before):
            return f"the clock jumped from {before:g} s to {seen.time:g} s"
        if of_operators and seen.seconds > JUMP * usual:
            return f"the clock jumped: a look over {seen.seconds:g} s follows one over {usual:g} s"
        return ""

    @property
    def array(self) -> Floats:
        """As a policy keeps it in its state."""
        return np.array([self.time, self.seconds])

    @classmethod
    def of(cls, array: Floats) -> Clock:
        """The clock that gave this array."""
        return cls(float(array[0]), float(array[1]))

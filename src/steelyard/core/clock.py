"""The moment of the newest look at a job, by which it is seen that its clock jumped."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from steelyard.core.control import Observation
from steelyard.core.plans import Floats

JUMP = 10.0
"""So many times the time that a look should be over, or should come behind the one before, is a jump of the clock."""


@dataclass
class Clock:
    """When the newest look was.

    A policy that remembers looks has one to know that what it remembers counts no more, also after a restart.

    Looks at operators follow each other in time and are over the time since the one before, or over less where somebody
    else has looked meanwhile. Those at batches are over the time that a batch took, as long as that may be, and two may
    end at the same moment.

    Examples
    --------
    >>> clock = Clock()
    >>> [clock.jumped(Observation(time, 15.0)) for time in (15.0, 30.0, 20.0)]
    ['', '', 'the clock jumped from 30 s to 20 s']
    """

    time: float = -inf

    def jumped(self, seen: Observation) -> str:
        """What is wrong with the moment of a look, if anything is; then it is the newest, if it is one at all."""
        of_operators = bool(seen.operators)
        stands = seen.seconds < 0 or (of_operators and seen.seconds == 0)
        if stands or not (isfinite(seen.time) and isfinite(seen.seconds)):
            return f"the clock jumped: this is said to be a look at {seen.time:g} s over {seen.seconds:g} s"
        before, self.time = self.time, seen.time
        if seen.time < before or (of_operators and seen.time == before):
            return f"the clock jumped from {before:g} s to {seen.time:g} s"
        if of_operators and seen.seconds > JUMP * (seen.time - before):
            return f"the clock jumped: a look over {seen.seconds:g} s is {seen.time - before:g} s behind the one before"
        return ""

    @property
    def array(self) -> Floats:
        """As a policy keeps it in its state."""
        return np.array([self.time])

    @classmethod
    def of(cls, array: Floats) -> Clock:
        """The clock that gave this array."""
        return cls(float(array[0]))


@dataclass
class SteadyClock(Clock):
    """That of looks which follow each other in about the same time, so that it is seen too where the clock jumps ahead.

    The controller has one, and does nothing at a look where the clock jumped, whatever engine and policy there are. How
    long a look is over says nothing of that: others may look at the same engine at any time.

    Examples
    --------
    >>> from steelyard.core.control import OperatorObservation
    >>> clock = SteadyClock()
    >>> log = OperatorObservation("log", 1),
    >>> [clock.jumped(Observation(time, 1.0, log)) for time in (15.0, 30.0, 45.0, 900.0)][-1]
    'the clock jumped from 45 s to 900 s: looks came every 15 s'
    """

    gap: float = inf
    """Seconds between the two newest looks."""
    every: float = 0.0
    """Seconds that are to be between two, where that is known; the last look of a run may come sooner."""

    def jumped(self, seen: Observation) -> str:
        """What is wrong with the moment of a look, also where it comes far later than looks do."""
        before, usual = self.time, max(self.gap, self.every)
        why = super().jumped(seen)
        if why or not seen.operators:
            return why
        self.gap = seen.time - before
        if self.gap > JUMP * usual:
            return f"the clock jumped from {before:g} s to {seen.time:g} s: looks came every {usual:g} s"
        return ""

"""What instances of a shuffle edge have been given and have not worked off, as far as who sends to them knows.

An instance says of every message when it has worked it off. So a sender knows which messages are still there, and only
of the one under way not how much of it is done. That is more than any estimate of costs tells, and it costs nothing:
the room for new messages is given back in any case.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.grouping.protocol import Chosen, Scheduler
from steelyard.resident.channel import CREDIT

AHEAD_SECONDS = 0.01
"""Work that an instance has before it gets no more of a sender who follows it: time enough to bring it more."""
_SHORTEST_WAIT, _LONGEST_WAIT = 0.0005, 1.0
_NO_CREDIT = 1.0
"""Seconds of work that an instance without credit counts as having more."""


class FollowingScheduler(Scheduler, Protocol):
    """A scheduler that can be told how far instances are with what they were given."""

    @property
    def given(self) -> Floats:
        """float64[instances]: what it thinks each has been given so far, in seconds of work."""
        ...

    @property
    def loads(self) -> Floats:
        """float64[instances]: when it thinks each will have done all of it."""
        ...

    def follow(self, left: Floats, now: float) -> None:
        """What of it is left to each instance."""
        ...

    def choose(
        self, items: Ints, costs: Floats | None = None, times: Floats | None = None, until: float = math.inf
    ) -> Chosen:
        """As any; for fewer tuples where no load is below `until` any more."""
        ...


class Queues:
    """What instances have been sent and have not worked off, as a scheduler thinks of it, message by message.

    Parameters
    ----------
    scheduler
        Whose choices they are.
    """

    def __init__(self, scheduler: FollowingScheduler) -> None:
        self.scheduler = scheduler
        self._done = scheduler.given
        """float64[instances]: what was given up to the last message that was worked off."""
        self._since = np.zeros(scheduler.instances)
        """When that was, or when the first message came to an instance that had none."""
        self._messages: list[deque[float]] = [deque() for _ in range(scheduler.instances)]
        """What was given up to each message that is not worked off."""

    def sent(self, instance: int, moment: float) -> None:
        """All that the scheduler has given to an instance is on its way there, in one message more."""
        if not self._messages[instance]:
            self._since[instance] = moment
        self._messages[instance].append(float(self.scheduler.given[instance]))

    def worked_off(self, instance: int, messages: int, moment: float) -> None:
        """So many messages were."""
        for _ in range(messages):
            self._done[instance] = self._messages[instance].popleft()
        self._since[instance] = moment

    def left(self, moment: float) -> Floats:
        """float64[instances]: seconds of work that are left to each; of the message under way, at least nothing."""
        heads = np.array([queue[0] if queue else 0.0 for queue in self._messages]) - self._done
        found: Floats = self.scheduler.given - self._done
        found -= np.clip(moment - self._since, 0.0, np.maximum(heads, 0.0))
        full = np.array([len(queue) >= CREDIT for queue in self._messages])
        return np.where(full, found + _NO_CREDIT, found)

    def patience(self, moment: float) -> float:
        """How long an instance will need until it has room, as far as is known; 0 where one has."""
        self.scheduler.follow(self.left(moment), moment)
        beyond = float(self.scheduler.loads.min()) - moment - AHEAD_SECONDS
        return min(max(beyond, _SHORTEST_WAIT), _LONGEST_WAIT) if beyond >= 0.0 else 0.0

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
from steelyard.grouping.protocol import Chosen, Requests, Scheduler
from steelyard.resident.channel import CREDIT

AHEAD_SECONDS = 0.008
"""An instance that has less work left gets more from a sender who follows it: time enough to bring it there."""
FILLED_SECONDS = 0.03
"""Then it may get as much as this: in one message, since many small ones would cost more than they bring."""
_SHORTEST_WAIT, _LONGEST_WAIT = 0.0005, 1.0
_NOT_NOW = 1.0
"""Seconds of work that an instance counts as having more where it is to get none."""


class FollowingScheduler(Scheduler, Protocol):
    """A scheduler that can be told how far instances are with what they were given."""

    @property
    def given(self) -> list[float]:
        """By instance: what it thinks each has been given so far, in seconds of work."""
        ...

    @property
    def pace(self) -> list[float]:
        """By instance: seconds that each takes for a second of that work, with what it does for others."""
        ...

    def follow(self, left: list[float], now: float) -> None:
        """How long each instance will take for what is left to it."""
        ...

    def choose(
        self, items: Ints, costs: Floats | None = None, times: Floats | None = None, until: float = math.inf
    ) -> Chosen:
        """As any; for fewer tuples where no load is below `until` any more."""
        ...


class Queues:
    """What instances have been sent and have not worked off, as a scheduler thinks of it, message by message.

    All is plain Python: there are few instances, and a sender looks at them again and again.

    Parameters
    ----------
    scheduler
        Whose choices they are.
    """

    def __init__(self, scheduler: FollowingScheduler) -> None:
        self.scheduler = scheduler
        self._done = scheduler.given
        """By instance: what was given up to the last message that was worked off."""
        self._since = [0.0] * scheduler.instances
        """When that was, or when the first message came to an instance that had none."""
        self._messages: list[deque[float]] = [deque() for _ in range(scheduler.instances)]
        """What was given up to each message that is not worked off."""

    def sent(self, instance: int, moment: float) -> None:
        """All that the scheduler has given to an instance is on its way there, in one message more."""
        if not self._messages[instance]:
            self._since[instance] = moment
        self._messages[instance].append(self.scheduler.given[instance])

    def worked_off(self, instance: int, messages: int, moment: float) -> bool:
        """So many messages were; whether the instance has room now."""
        queue = self._messages[instance]
        for _ in range(messages):
            self._done[instance] = queue.popleft()
        self._since[instance] = moment
        return not queue or queue[-1] - self._done[instance] < AHEAD_SECONDS

    def left(self, moment: float) -> list[float]:
        """By instance: how long it will take for what is left to it; of the message under way, at least nothing."""
        found = []
        state = zip(self.scheduler.given, self._done, self._since, self._messages, self.scheduler.pace, strict=True)
        for given, done, since, queue, pace in state:
            work = (given - done) * pace
            if queue:
                work -= min(max(moment - since, 0.0), (queue[0] - done) * pace)
            found.append(work if len(queue) < CREDIT else work + _NOT_NOW)
        return found

    def patience(self, moment: float) -> float:
        """How long an instance will need until it has room, as far as is known; 0 where one has."""
        beyond = min(self.left(moment)) - AHEAD_SECONDS
        return min(max(beyond, _SHORTEST_WAIT), _LONGEST_WAIT) if beyond >= 0.0 else 0.0

    def choose(self, items: Ints, moment: float) -> Chosen:
        """Instances for as many tuples as there is room for; `patience` has said that there is some.

        Those that have enough get none, or each would get one or two in a message of its own. Of several requests to an
        instance the last one goes.
        """
        left = [work if work < AHEAD_SECONDS else work + _NOT_NOW for work in self.left(moment)]
        self.scheduler.follow(left, moment)
        chosen = self.scheduler.choose(items, times=np.full(len(items), moment), until=moment + FILLED_SECONDS)
        position, epoch, load = chosen.requests
        if len(position) < 2:
            return chosen
        to = chosen.to[position]
        last = [place for place in range(len(to)) if to[place] not in to[place + 1 :]]
        return Chosen(chosen.to, Requests(position[last], epoch[last], load[last]))

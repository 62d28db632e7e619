"""Join the shortest queue: what there is to gain for who could see all queues at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core import OptionError, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.grouping.protocol import Chosen, Report, Requests


@dataclass(frozen=True)
class Shortest:
    """Each tuple to the instance with the fewest tuples, which no real sender knows; the first of equals.

    A simulator knows: tuples that wait, are under way to an instance, or are served, of all senders together.

    Examples
    --------
    >>> import numpy as np
    >>> queues = np.array([[3, 1, 2], [3, 2, 2]])  # of three instances, when each of two tuples is sent
    >>> Shortest().scheduler(3).choose(np.zeros(2, np.int64), queues=queues).to.tolist()
    [1, 1]
    """

    name: ClassVar[str] = "shortest"
    needs_queues: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    def scheduler(self, instances: int, number: int = 0, schedulers: int = 1) -> QueueScheduler:
        """A new scheduler; its number makes no difference."""
        return QueueScheduler(instances)

    def instance(self, instances: int, number: int, schedulers: int = 1) -> SilentInstance:
        """A new instance, which has nothing to tell."""
        return SilentInstance()


class QueueScheduler:
    """Looks at all queues for each tuple."""

    def __init__(self, instances: int) -> None:
        self.instances = instances

    def choose(
        self, items: Ints, costs: Floats | None = None, times: Floats | None = None, queues: Ints | None = None
    ) -> Chosen:
        """The instances whose queues (int64[tuples, instances]) are the shortest when tuples are sent."""
        if queues is None:
            raise OptionError(f"{Shortest.name} must know how many tuples each instance has: give `queues`")
        if queues.shape != (len(items), self.instances):
            raise ValueError(
                f"queues are one per tuple and instance, {(len(items), self.instances)}, got {queues.shape}"
            )
        return Chosen(queues.argmin(axis=1).astype(np.int32), Requests.none())

    def feedback(self, reports: Sequence[Report]) -> None:
        """Nobody reports."""

    def state(self) -> State:
        """Nothing."""
        return {}

    def restore(self, state: State) -> None:
        """Go on: nothing was remembered."""


class SilentInstance:
    """Learns nothing."""

    def executed(
        self,
        items: Ints,
        seconds: Floats,
        finished: Floats,
        requests: Requests | None = None,
        scheduler: int = 0,
    ) -> list[Report]:
        """Nothing to report."""
        return []

    def state(self) -> State:
        """Nothing."""
        return {}

    def restore(self, state: State) -> None:
        """Go on: nothing was learnt."""

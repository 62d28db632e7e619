"""Rows in proportion to speed: a slow instance gets fewer rows before anything is moved or made more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import Action, Observation, OperatorObservation, OptionError
from steelyard.core.weights import lowest
from steelyard.scaling.sight import nothing, unsaid

LARGEST = 20
"""The weight of the fastest instance: others are to within a twentieth of it."""


@dataclass(frozen=True)
class BySpeed:
    """Give each instance of an operator a share of the rows in proportion to the rows that it does in a busy second.

    On machines of different speeds, or beside others that take the processor, instances that get equal numbers of rows
    all wait for the slowest. Weights of a route stop nothing and move nothing, so this comes before a move or more
    instances. It acts on edges that deal rows out in turn (`shuffle`, `round_robin`) and nowhere else.

    Parameters
    ----------
    busy
        Nothing is done for an operator whose busiest instance is busy for a smaller share of its time.
    gap
        Nor where every instance would get its share of before, give or take this part of it.

    Examples
    --------
    >>> from steelyard.core import InstanceObservation
    >>> each = [InstanceObservation("map#0", processed_per_second=90.0, busy=0.45),
    ...         InstanceObservation("map#1", processed_per_second=90.0, busy=0.9)]
    >>> seen = Observation(15.0, 15.0, (OperatorObservation.of("map", each, {"log": 180.0}),),
    ...                    weights={("log", "map"): (1, 1)})
    >>> print(BySpeed().decide(seen).weights)
    {('log', 'map'): (2, 1)}
    """

    busy: float = 0.5
    gap: float = 0.2

    name: ClassVar[str] = "by_speed"
    needs: ClassVar[tuple[str, ...]] = ("operators", "instances", "weights")

    def __post_init__(self) -> None:
        if not 0 < self.busy <= 1:
            raise OptionError(f"busy of BySpeed must be above 0 and at most 1, got {self.busy!r}")
        if not 0 <= self.gap < 1:
            raise OptionError(f"gap of BySpeed must be from 0 to below 1, got {self.gap!r}")

    def decide(self, observation: Observation) -> Action:
        """Weights for all edges to operators whose instances are not equally fast."""
        if why := unsaid(observation):
            return nothing(why)
        held, wanted = observation.weights or {}, {}
        for one in observation.operators:
            fair = self._fair(one)
            for ends, now in held.items():
                if fair and ends[1] == one.name and len(now) == len(fair) and self._differs(fair, now):
                    wanted[ends] = fair
        if not wanted:
            return Action(reason="instances get rows as fast as they are")
        slow = ", ".join(sorted({receiver for _, receiver in wanted}))
        return Action(reason=f"instances of {slow} get rows in proportion to their speed", weights=wanted)

    def _fair(self, seen: OperatorObservation) -> tuple[int, ...]:
        """Weights by speed; none where an instance has done nothing that could be measured, or nobody is busy."""
        each = seen.instances
        if len(each) < 2 or max(one.busy for one in each) < self.busy:
            return ()
        speeds = [one.processed_per_second / one.busy if one.busy > 0 else 0.0 for one in each]
        if min(speeds) <= 0:
            return ()
        return lowest([max(1, round(LARGEST * speed / max(speeds))) for speed in speeds])

    def _differs(self, fair: tuple[int, ...], now: tuple[int, ...]) -> bool:
        """Whether an instance is to get another share, by more than the gap."""
        shares = [(one / sum(fair), other / sum(now)) for one, other in zip(fair, now, strict=True)]
        return any(abs(then - before) > self.gap * before for then, before in shares)

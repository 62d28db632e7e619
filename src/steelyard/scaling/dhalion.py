"""Dhalion: who waits is followed by who needs more instances, and where nobody waits there are too many."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import ClassVar

from steelyard.core import Action, Observation, OperatorObservation, OptionError
from steelyard.scaling.bottlenecks import HELD, bottlenecks, held_back
from steelyard.scaling.sight import nothing, unsaid

_MOST_HELD = 0.9
"""Held back for longer counts as for so long: no more than ten times the instances at once."""
_DIGITS = 9
"""0.9 / (1 - 0.9) is a little above 9 to a computer."""


@dataclass(frozen=True)
class Dhalion:
    """Look for symptoms, back-pressure and queues that are empty, and cure the bottleneck that they tell of.

    While an operator is held back, the one behind it is a bottleneck, and gets as many times more instances as the time
    in which it held the other back is over the rest. A source is one where its lag grows and nothing holds it back.
    Where nobody is held back, every operator whose input is nearly empty gets fewer.

    Parameters
    ----------
    scale_down
        Share of the instances that are taken away at once (Siachamis 2024, section 4: 0.2).
    every_bottleneck
        Whether all bottlenecks are cured at once, as in the published program, or the worst one (the text).
    held
        Share of its time from which an operator counts as held back.
    filled
        Share of the places of its queues below which an operator's input counts as nearly empty (0.2).
    grows
        Rows per second by which the lag of a source must grow (1,000).
    least_lag
        Rows below which a source's input counts as nearly empty (10,000).

    Examples
    --------
    >>> log = OperatorObservation("log", 2, processed_per_second=60.0, busy=0.6, backpressured=0.4)
    >>> parse = OperatorObservation("map", 5, {"log": 60.0}, processed_per_second=60.0, busy=1.0)
    >>> Dhalion().decide(Observation(15.0, 15.0, (log, parse))).parallelism
    {'map': 9}

    References
    ----------
    A. Floratou et al., *Dhalion: Self-Regulating Stream Processing in Heron*, VLDB 2017, as Siachamis 2024, section 4,
    has it for each operator of a Flink job. The printed formulas are the ratio alone; the number of instances is that
    many times more, as in the published program, which also feeds the *growth* of a source's lag into the test of
    whether its input is empty: here that is the lag.
    """

    scale_down: float = 0.2
    every_bottleneck: bool = False
    held: float = HELD
    filled: float = 0.2
    grows: float = 1000.0
    least_lag: float = 10_000.0

    name: ClassVar[str] = "dhalion"
    paper: ClassVar[str] = "Floratou et al. 2017"
    needs: ClassVar[tuple[str, ...]] = ("operators", "arrivals", "queues")

    def __post_init__(self) -> None:
        if not 0 < self.scale_down < 1:
            raise OptionError(f"scale_down of Dhalion must be above 0 and below 1, got {self.scale_down!r}")
        if not 0 <= self.held < 1:
            raise OptionError(f"held of Dhalion must be a share of time below 1, got {self.held!r}")

    def decide(self, observation: Observation) -> Action:
        """More instances for bottlenecks; fewer for whoever has nothing to do, where there is no back-pressure."""
        if why := unsaid(observation):
            return nothing(why)
        ratios = {one.name: self._ratio(one, observation) for one in bottlenecks(observation, self.grows, self.held)}
        now = observation.parallelism
        if ratios:
            worst = max(ratios, key=lambda name: ratios[name])
            cured = ratios if self.every_bottleneck else {worst: ratios[worst]}
            said = ", ".join(f"{name} lacks {ratio:.2f} of its capacity" for name, ratio in cured.items())
            more = {name: ceil(round(now[name] * (1 + ratio), _DIGITS)) for name, ratio in cured.items()}
            return Action(more, f"bottlenecks: {said}")
        if held_back(observation, self.held):
            return Action(reason="somebody is held back, and nobody behind is to blame")
        fewer = {
            one.name: max(1, floor(round(one.parallelism * (1 - self.scale_down), _DIGITS)))
            for one in observation.operators
            if self._is_empty(one)
        }
        return Action(fewer, f"nobody is held back, nearly empty: {', '.join(fewer) or 'none'}")

    def _ratio(self, one: OperatorObservation, seen: Observation) -> float:
        """Eq 4.1: time held back over the rest; Eq 4.2 of sources: rows more that wait over those that are read."""
        if not one.received_from:
            return max(one.lag_per_second or 0.0, 0.0) / (one.processed_per_second or 1.0)
        senders = [other for other in seen.operators if other.name in one.received_from]
        blocked = min(max(sender.backpressured for sender in senders), _MOST_HELD)
        return blocked / (1 - blocked)

    def _is_empty(self, one: OperatorObservation) -> bool:
        if one.received_from:
            return one.queue_filled <= self.filled
        return (one.lag or 0.0) <= self.least_lag

"""DS2: as many instances as the true rates of the operators ask for, all in one pass.

V. Kalavri, J. Liagouris, M. Hoffmann, D. Dimitrova, M. Forshaw, T. Roscoe, Three steps is all you need, OSDI 2018; as
Siachamis 2025, section 4, applies it to Kafka sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from steelyard.core import Action, Observation, OperatorObservation, OptionError
from steelyard.scaling.sight import nothing, unsaid

_DIGITS = 9
"""To which a number of instances is rounded before it is rounded up, so that 2.0000000000000004 is 2."""


@dataclass(frozen=True)
class DS2:
    """What an operator could do if it never waited decides how many of it are needed.

    The true rate of an instance is what it processes in a second of useful time: of work, rows taken in and handed on
    included. Sources must keep up with what comes to their logs, and every operator with what its senders would put out
    on the edge to it if they did.

    Parameters
    ----------
    overprovisioning
        How much more is provided than the formula asks for (Siachamis 2025, section 4: 0.2).

    Examples
    --------
    >>> source = OperatorObservation("log", 2, processed_per_second=60_000, busy=0.6, arrived_per_second=100_000)
    >>> parse = OperatorObservation("map", 3, {"log": 60_000}, processed_per_second=60_000, busy=0.8)
    >>> DS2().decide(Observation(15.0, 15.0, (source, parse))).parallelism
    {'log': 3, 'map': 5}
    """

    overprovisioning: float = 0.2

    name: ClassVar[str] = "ds2"
    paper: ClassVar[str] = "Kalavri et al. 2018"
    needs: ClassVar[tuple[str, ...]] = ("operators", "arrivals")

    def __post_init__(self) -> None:
        if not self.overprovisioning >= 0:
            raise OptionError(f"overprovisioning of DS2 must be 0 or more, got {self.overprovisioning!r}")

    def decide(self, observation: Observation) -> Action:
        """Instances for each operator that did anything; one that did nothing is left as it is."""
        if why := unsaid(observation):
            return nothing(why)
        # how many times as much as it does each operator should do; as much for who sends back in a cycle
        more: dict[str, float] = {}
        chosen: dict[str, int] = {}
        for operator in observation.operators:
            processed, target = operator.processed_per_second, operator.arrived_per_second
            if operator.received_from:
                target = sum(rate * more.get(sender, 1.0) for sender, rate in operator.received_from.items())
            elif target is None:  # an engine that shows arrivals may not know them before its first look
                target = processed
            more[operator.name] = target / processed if processed else 1.0
            chosen[operator.name] = self._needed(operator, target)
        return Action(chosen, "what the true rates ask for")

    def _needed(self, operator: OperatorObservation, target: float) -> int:
        """Eq 4.3: target rate over the mean true rate of an instance, rounded up before and after the surplus."""
        true_rate = _true_rate(operator)
        if not true_rate:
            return operator.parallelism
        needed = max(1, ceil(round(target / true_rate, _DIGITS)))
        return ceil(round(needed * (1 + self.overprovisioning), _DIGITS))


def _true_rate(operator: OperatorObservation) -> float:
    """Rows that an instance processes in a second of work, mean over those that worked; 0 where none did."""
    each = [
        one.processed_per_second / one.busy
        for one in operator.instances
        if one.busy > 0 and one.processed_per_second > 0
    ]
    if each:
        return sum(each) / len(each)
    return operator.processed_per_second / operator.parallelism / operator.busy if operator.busy > 0 else 0.0

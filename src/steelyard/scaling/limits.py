"""What an autoscaler may ask for: no more workers than there are, and no more at once than is wise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.core import DataflowObservation, OptionError, ParallelismDecision, ParallelismPolicy


@dataclass(frozen=True)
class Limited:
    """Another policy's decision, cut to what the cluster allows (Siachamis 2025, section 4).

    Parameters
    ----------
    policy
        Who decides.
    workers
        Instances of all operators together, at most.
    max_increase
        Instances that an operator gets at once, at most.

    Examples
    --------
    >>> squeezed({"a": 40, "b": 30, "c": 20}, workers=70)
    {'a': 31, 'b': 23, 'c': 16}
    """

    policy: ParallelismPolicy
    workers: int = 70
    max_increase: int = 15

    def __post_init__(self) -> None:
        for name in ("workers", "max_increase"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} of Limited must be 1 or more, got {getattr(self, name)}")

    def decide(self, observation: DataflowObservation) -> ParallelismDecision:
        """The policy's numbers, within bounds."""
        now = observation.instances()
        decision = self.policy.decide(observation)
        wanted = {
            name: min(decision.instances.get(name, count), count + self.max_increase) for name, count in now.items()
        }
        fitting = squeezed(wanted, self.workers)
        cut = "" if fitting == dict(decision.instances) else f", cut to fit {self.workers} workers"
        return ParallelismDecision(fitting, decision.reason + cut)


def squeezed(instances: Mapping[str, int], workers: int) -> dict[str, int]:
    """The same numbers, scaled down where there are more than `workers` in all; each operator keeps one at least."""
    total, operators = sum(instances.values()), len(instances)
    if total <= workers:
        return dict(instances)
    if workers < operators:
        raise OptionError(f"{operators} operators need a worker each, and workers={workers}: allow more")
    share = (workers - operators) / (total - operators)
    cut = {name: 1 + round(share * (count - 1)) for name, count in instances.items()}
    while sum(cut.values()) != workers:
        largest = max(cut, key=lambda name: cut[name])
        cut[largest] += 1 if sum(cut.values()) < workers else -1
    return cut

"""What an autoscaler sees of a running dataflow, and what it decides: so many instances of each operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class OperatorObservation:
    """One operator or source over an interval, all instances together unless it says otherwise.

    Parameters
    ----------
    name
        How the dataflow calls it.
    instances
        How many there are.
    received_from
        Those that send to it, and the tuples per second that came from each; empty for a source.
    processed_per_second
        Tuples that it took. For a source: rows that it read.
    busy, backpressured, idle
        Shares of the instances' time, which add up to 1: on tuples, held back by full queues, with nothing to do.
    cpu
        Share of its cores.
    queue_filled
        Share of the places of its queues that are taken at the end; 0 where they have no bound.
    arrived_per_second
        For a source: rows that came to its log.
    lag, lag_per_second
        For a source: rows that came and are not read, and how fast they grow.
    """

    name: str
    instances: int
    received_from: Mapping[str, float] = field(default_factory=dict)
    processed_per_second: float = 0.0
    busy: float = 0.0
    backpressured: float = 0.0
    idle: float = 0.0
    cpu: float = 0.0
    queue_filled: float = 0.0
    arrived_per_second: float = 0.0
    lag: float = 0.0
    lag_per_second: float = 0.0


@dataclass(frozen=True)
class DataflowObservation:
    """All operators over one interval, senders before their receivers."""

    time: float
    """End of the interval, in seconds."""
    seconds: float
    operators: tuple[OperatorObservation, ...]

    def instances(self) -> dict[str, int]:
        """How many instances each has."""
        return {one.name: one.instances for one in self.operators}


@dataclass(frozen=True)
class ParallelismDecision:
    """Numbers of instances by operator, and the reason in words. Operators that are not named stay as they are."""

    instances: Mapping[str, int]
    reason: str = ""

    def __post_init__(self) -> None:
        for name, count in self.instances.items():
            if count < 1:
                raise ValueError(f"an operator has at least one instance, got {count} for {name!r}")


@runtime_checkable
class ParallelismPolicy(Protocol):
    """Chooses how many instances each operator of a dataflow has.

    An engine calls `decide` after each interval, except while it rescales and for a while after. What comes back
    takes effect at once, by a stop and a restart.
    """

    def decide(self, observation: DataflowObservation) -> ParallelismDecision:
        """Numbers of instances from now on."""
        ...

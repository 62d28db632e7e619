"""What every engine shows of a running job, and what a policy may have it do.

An engine shows an `Observation`, a policy answers with an `Action` and its reason in words, and the engine does it.
Which engine that is, and whether its time is simulated, neither of them knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, runtime_checkable

BLOCKS, BUCKETS = "blocks", "buckets"
"""What the map and the reduce tasks of a batch are called, where operators of a dataflow have names of their own."""


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
class TaskObservation:
    """What one map task did with its block, measured inside the task."""

    block: int
    rows: int
    clusters: int
    seconds: float
    """Wall-clock time in the task's own code."""
    cpu_seconds: float
    """Processor time of the task's process, which does not count waiting."""


@dataclass(frozen=True)
class BatchObservation:
    """The batch that just ended, where there are batches."""

    number: int
    rows: int
    keys: int
    """Distinct keys; where a batch has several panes of windows, a key counts once in each. 0 where nobody counted."""
    blocks: int
    buckets: int
    processing_seconds: float
    interval_seconds: float
    """Time between two triggers; 0 where batches follow each other without pause."""
    slots: int = 0
    """Tasks that can run at the same time; 0 where it is not known."""
    map_seconds: float = 0.0
    """The map stage's share of the processing time; 0 where it was not measured."""
    reduce_seconds: float = 0.0
    """The reduce stage's share; 0 where it was not measured."""
    planning_seconds: float = 0.0
    """What planning took of the processing time."""
    tasks: tuple[TaskObservation, ...] = ()
    """Map tasks; none where nobody measured them."""
    senders: int = 1
    """Routers that send to the same instances, one of which sent these rows, where rows come without an end."""

    @property
    def load(self) -> float:
        """W: processing time over batch interval. Above 1 batches queue up."""
        return self.processing_seconds / self.interval_seconds if self.interval_seconds else 0.0

    @classmethod
    def of_edge(
        cls,
        number: int,
        rows: Sequence[int],
        clusters: Sequence[int],
        seconds: Sequence[float],
        beside: float,
        senders: int = 1,
    ) -> BatchObservation:
        """What the rows of one of several routers cost on an edge: rows, key clusters and seconds of each instance.

        `beside` are the seconds that sending them took beyond the work of the instance with most of it.

        >>> BatchObservation.of_edge(0, [9, 0], [2, 0], [0.5, 0.0], beside=0.25).processing_seconds
        0.75
        """
        each = zip(range(len(rows)), rows, clusters, seconds, seconds, strict=True)
        tasks = tuple(TaskObservation(*one) for one in each if one[1])
        took = max(seconds, default=0.0) + beside
        return cls(number, sum(rows), 0, len(rows), len(rows), took, 0.0, tasks=tasks, senders=senders)

    def at(self, time: float = 0.0) -> Observation:
        """As an engine shows it that has nothing else to show."""
        return Observation(time, max(self.interval_seconds, self.processing_seconds), batch=self)


@dataclass(frozen=True)
class Observation:
    """What an engine saw since the last look. What it cannot know is absent."""

    time: float
    """When: seconds since the engine began, in its own time, which may be simulated."""
    seconds: float
    """How long that was since the last look."""
    operators: tuple[OperatorObservation, ...] = ()
    """Senders before their receivers."""
    batch: BatchObservation | None = None
    placement: Mapping[str, int] = field(default_factory=dict)
    """The worker of each instance, which is called as in `count#0`."""

    @property
    def parallelism(self) -> dict[str, int]:
        """How many instances each operator has, how many blocks and buckets a batch."""
        tasks = {BLOCKS: self.batch.blocks, BUCKETS: self.batch.buckets} if self.batch else {}
        return {one.name: one.instances for one in self.operators} | tasks

    @property
    def figures(self) -> dict[str, float]:
        """How the job does, in a few numbers: what a decision is judged by."""
        found: dict[str, float] = {}
        if self.operators:
            found["arrived_per_second"] = sum(one.arrived_per_second for one in self.operators)
            found["lag"] = sum(one.lag for one in self.operators)
            found["busy"] = max(one.busy for one in self.operators)
        if self.batch is not None:
            found["rows"] = self.batch.rows
            found["seconds"] = self.batch.processing_seconds
            found["load"] = self.batch.load
        return found


@dataclass(frozen=True)
class Action:
    """What an engine shall do, and the reason in words. What is not named stays as it is.

    >>> Action({"count": 0})
    Traceback (most recent call last):
    ValueError: count has at least 1, got 0
    """

    parallelism: Mapping[str, int] = field(default_factory=dict)
    """Instances by operator; blocks and buckets of a batch."""
    reason: str = ""
    placement: Mapping[str, int] = field(default_factory=dict)
    """Workers by instance, as in `{"count#0": 1}`."""

    def __post_init__(self) -> None:
        for name, count in self.parallelism.items():
            if count < 1:
                raise ValueError(f"{name} has at least 1, got {count}")

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.parallelism or self.placement)

    def changes(self, seen: Observation) -> Action:
        """What of it is not so already."""
        return replace(
            self,
            parallelism=_others(self.parallelism, seen.parallelism),
            placement=_others(self.placement, seen.placement),
        )


def _others(wanted: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in wanted.items() if now.get(name) != value}


@runtime_checkable
class ScalingPolicy(Protocol):
    """Chooses how many tasks a batch has, or how many instances an operator has, from what an engine saw.

    One that has `needs` is refused by an engine that cannot show all of it: `operators`, `arrivals` (what comes to
    sources, and their lag), `placement`, `batch`, or `batch.load` (how long a batch may take).
    """

    def decide(self, observation: Observation) -> Action:
        """Called after each batch, or after each interval."""
        ...


class Controllable(Protocol):
    """An engine, seen from who is in charge of it: it can be looked at and acted on, and decides nothing."""

    what: ClassVar[str]
    """What it is, in errors."""

    @property
    def shows(self) -> frozenset[str]:
        """What its observations have, of all that may be absent."""
        ...

    def observe(self) -> Observation:
        """What happened since the last look."""
        ...

    def apply(self, action: Action) -> float:
        """Do it, or have it done when it can be; for how many seconds that disturbs the job, in the engine's time.

        0 where that is not known beforehand.
        """
        ...


class Timed(Controllable, Protocol):
    """An engine that is looked at after a while, and not after a batch. Its time may be simulated."""

    @property
    def now(self) -> float:
        """Seconds since it began."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more."""
        ...

    def advance(self, seconds: float) -> None:
        """Come back after so many seconds, or when it has ended."""
        ...

"""What every engine shows of a running job, and what a policy may have it do.

An engine shows an `Observation`, a policy answers with an `Action` and its reason in words, and the engine does it.
Which engine that is, and whether its time is simulated, neither of them knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

from steelyard.core.checkpointing import CheckpointObservation
from steelyard.core.errors import OptionError
from steelyard.core.weights import Ends, Weights, lowest
from steelyard.core.worksets import JoinObservation, WorksetId

BLOCKS, BUCKETS = "blocks", "buckets"
"""What the map and the reduce tasks of a batch are called, where operators of a dataflow have names of their own."""
Value = TypeVar("Value")
PERCENTILES = (50.0, 95.0, 99.0)
"""Of latencies."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an instance did over an interval, or all instances of an operator together.

    Parameters
    ----------
    processed_per_second, sent_per_second
        Tuples that it took, and that it gave. For a source, taken are rows that it read.
    bytes_in_per_second, bytes_out_per_second
        The same in bytes.
    busy, backpressured, idle
        Shares of its time, which add up to 1: at work, held back by full queues, with nothing to do.
    useful
        Share of its time in the operator itself; the rest of `busy` is for routing and sending.
    cpu
        Processor time as a share of its time: where it is less than `busy`, others had its core.
    queue
        Rows that wait at the end.
    queue_filled
        Share of the places of its queues that are taken at the end; 0 where they have no bound.
    costs
        The newest measurements of (rows, seconds in the operator).
    state_bytes
        What it keeps, as large as it was in its newest snapshot.
    arrived_per_second
        For a source: rows that came to its log.
    end_offset
        For a source: where its log ends, all of its parts added up.
    lag, lag_per_second, lag_seconds
        For a source: rows that came and are not read, how fast they grow, and how long the oldest of them waits.
    """

    processed_per_second: float = 0.0
    sent_per_second: float = 0.0
    bytes_in_per_second: float | None = None
    bytes_out_per_second: float | None = None
    busy: float = 0.0
    backpressured: float = 0.0
    idle: float = 0.0
    useful: float | None = None
    cpu: float | None = None
    queue: float | None = None
    queue_filled: float = 0.0
    costs: tuple[tuple[float, float], ...] | None = None
    state_bytes: float | None = None
    arrived_per_second: float | None = None
    end_offset: float | None = None
    lag: float | None = None
    lag_per_second: float | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True)
class InstanceObservation(Work):
    """One instance over an interval, called as in `count#0`."""

    name: str


_MEANS = ("busy", "backpressured", "idle", "useful", "cpu", "queue_filled")
_LONGEST = "lag_seconds"


@dataclass(frozen=True)
class OperatorObservation(Work):
    """One operator or source over an interval: all of its instances together, and each of them.

    Parameters
    ----------
    name
        How the dataflow calls it.
    parallelism
        How many instances there are.
    received_from
        Those that send to it, and the tuples per second that came from each; empty for a source.
    instances
        Each of them.
    """

    name: str
    parallelism: int
    received_from: Mapping[str, float] = field(default_factory=dict)
    instances: tuple[InstanceObservation, ...] = ()

    @classmethod
    def of(cls, name: str, each: Sequence[InstanceObservation], received_from: Mapping[str, float]) -> Self:
        """All instances together: shares are means, the rest is added up. What is not known of one is not known.

        >>> both = InstanceObservation("map#0", busy=0.5, queue=3), InstanceObservation("map#1", busy=1.0, queue=4)
        >>> found = OperatorObservation.of("map", both, {"log": 10.0})
        >>> found.parallelism, found.busy, found.queue, found.lag
        (2, 0.75, 7.0, None)
        """
        found: dict[str, Any] = {}
        for one in fields(Work):
            values = [getattr(instance, one.name) for instance in each]
            if not values or any(value is None for value in values):
                continue
            if one.name == "costs":
                found[one.name] = tuple(sample for samples in values for sample in samples)
            elif one.name == _LONGEST:
                found[one.name] = max(values)
            else:
                found[one.name] = sum(values) / (len(values) if one.name in _MEANS else 1)
        return cls(name, len(each), received_from, tuple(each), **found)


@dataclass(frozen=True)
class WorkerObservation:
    """A machine of the simulator, or a worker of the resident engine, over an interval."""

    number: int
    cores_used: float
    """Processor seconds of its instances in a second."""
    cores: float
    """Those of its machine, which resident workers on the same machine share."""
    sent_bytes_per_second: float | None = None
    """To other workers."""
    memory_bytes: float | None = None

    @property
    def load(self) -> float:
        """Share of the cores."""
        return self.cores_used / self.cores


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
class ReduceObservation:
    """What one reduce task did with its bucket, measured inside the task."""

    bucket: int
    seconds: float
    """Wall-clock time in the task's own code."""
    records: int = 0
    """What map tasks sent it, one for each of their key clusters; 0 where nobody counted."""
    keys: int = 0
    """Distinct keys; where a batch has several panes of windows, a key counts once in each. 0 where nobody counted."""
    cpu_seconds: float = 0.0
    """Processor time of the task's process; 0 where nobody measured."""


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
    reduce_tasks: tuple[ReduceObservation, ...] = ()
    """Reduce tasks; none where nobody measured them, such as those that run in the JVM alone."""
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
    join: JoinObservation | None = None
    """What the workers of a similarity join did."""
    workers: tuple[WorkerObservation, ...] = ()
    latency: Mapping[float, float] | None = None
    """By percentile: seconds from when a row came to its log, or was read where the log does not tell, until what it
    became left the dataflow; a sample of them. None where nothing left."""
    checkpoints: CheckpointObservation | None = None
    weights: Weights | None = None
    """Of each edge that deals rows out in turn; all 1 where nobody gave others."""
    joined: tuple[tuple[str, ...], ...] = ()
    """Operators that can only have the same number of instances, since forward edges join them."""

    def behind(self, hidden: Observation | None) -> Observation:
        """With what a policy must know of the look before, if that was hidden from it."""
        if hidden is None or hidden.join is None or self.join is None:
            return self
        return replace(self, join=self.join.behind(hidden.join))

    @property
    def number(self) -> int:
        """Of the newest batch; -1 where there are none."""
        newest = self.batch.number if self.batch else -1
        return self.join.batch if self.join else newest

    @property
    def parallelism(self) -> dict[str, int]:
        """How many instances each operator has, how many blocks and buckets a batch."""
        tasks = {BLOCKS: self.batch.blocks, BUCKETS: self.batch.buckets} if self.batch else {}
        return {one.name: one.parallelism for one in self.operators} | tasks

    @property
    def figures(self) -> dict[str, float]:
        """How the job does, in a few numbers: what a decision is judged by."""
        found: dict[str, float] = {}
        if self.operators:
            for name in ("arrived_per_second", "lag"):
                known = [value for one in self.operators if (value := getattr(one, name)) is not None]
                found |= {name: sum(known)} if known else {}
            found["busy"] = max(one.busy for one in self.operators)
        if self.latency:
            found["latency"] = max(self.latency.values())
        if self.batch is not None:
            found["rows"] = self.batch.rows
            found["seconds"] = self.batch.processing_seconds
            found["load"] = self.batch.load
        if self.join is not None:
            found["imbalance"] = self.join.imbalance
            found["largest_over_mean"] = max(self.join.shares, default=1.0)
            found["moved_bytes"] = self.join.moved_bytes
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
    moves: Mapping[WorksetId, int] = field(default_factory=dict)
    """Workers by workset of a similarity join, what helps most first."""
    cuts: Mapping[WorksetId, int] = field(default_factory=dict)
    """Worksets of a similarity join that are cut, and into how many parts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Other settings by name: those of `core.checkpointing`."""
    weights: Mapping[Ends, tuple[int, ...]] = field(default_factory=dict)
    """By sender and receiver of an edge: for each receiving instance, how many rows it gets beside the others."""

    def __post_init__(self) -> None:
        for each in self.weights.values():
            lowest(each)
        for name, count in self.parallelism.items():
            if count < 1:
                raise ValueError(f"{name} has at least 1, got {count}")

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is to be done."""
        return not any(getattr(self, part) for part in _KEPT)

    def changes(self, seen: Observation) -> Action:
        """What of it is not so already. Who names an operator names all that are joined with it."""
        worksets = seen.join.worksets if seen.join else ()
        return replace(
            self,
            parallelism=_others(for_all_joined(self.parallelism, seen.joined), seen.parallelism),
            placement=_others(self.placement, seen.placement),
            moves=_others(self.moves, {one.id: one.worker for one in worksets}),
            settings=_others(self.settings, seen.checkpoints.settings if seen.checkpoints else {}),
            weights=_others(self.weights, seen.weights or {}),
        )

    def require_only(self, what: str, *parts: str) -> None:
        """ActionRefusedError where an engine is told to do more than these parts of an action.

        >>> Action(placement={"map#0": 1}).require_only("a query", "parallelism")
        Traceback (most recent call last):
        steelyard.core.control.ActionRefusedError: a query keeps its instances where they are, got {'map#0': 1}
        """
        for part, kept in _KEPT.items():
            if part not in parts and getattr(self, part):
                raise ActionRefusedError(f"{what} keeps {kept}, got {dict(getattr(self, part))}")

    def require_tasks_only(self, what: str) -> None:
        """ActionRefusedError where an engine of batches is told more than numbers of blocks and buckets.

        >>> Action({"map": 8}).require_tasks_only("a query")
        Traceback (most recent call last):
        steelyard.core.control.ActionRefusedError: a query has numbers of blocks and buckets, got {'map': 8}
        """
        self.require_only(what, "parallelism")
        others = {name: count for name, count in self.parallelism.items() if name not in (BLOCKS, BUCKETS)}
        if others:
            raise ActionRefusedError(f"{what} has numbers of {BLOCKS} and {BUCKETS}, got {others}")


_KEPT = {
    "parallelism": "its numbers of instances",
    "placement": "its instances where they are",
    "moves": "its state where it is",
    "cuts": "its state in one piece",
    "settings": "its settings",
    "weights": "its weights of routes",
}
"""The parts of an action, and what an engine keeps that cannot do one."""


def for_all_joined(numbers: Mapping[str, int], joined: Sequence[Sequence[str]]) -> dict[str, int]:
    """Numbers for all that are joined with those that are named: the largest that is named of one of them.

    >>> for_all_joined({"map": 2, "count": 1, "out": 3}, [("count", "columns", "out")])
    {'map': 2, 'count': 3, 'out': 3, 'columns': 3}
    """
    found = dict(numbers)
    for group in joined:
        named = [numbers[name] for name in group if name in numbers]
        if named:
            found |= dict.fromkeys(group, max(named))
    return found


def _others(wanted: Mapping[Any, Value], now: Mapping[Any, Value]) -> dict[Any, Value]:
    return {name: value for name, value in wanted.items() if now.get(name) != value}


@runtime_checkable
class ScalingPolicy(Protocol):
    """Chooses numbers of tasks or instances, or where these or worksets go, from what an engine saw.

    One that has `needs` is refused by an engine that cannot show all of it; `SHOWN` has the words for them.
    """

    def decide(self, observation: Observation) -> Action:
        """Called after each batch, or after each interval."""
        ...


class ActionRefusedError(OptionError):
    """What an engine cannot do at all, with the reason. A controller writes it down and goes on watching."""


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

        0 where that is not known beforehand. ActionRefusedError where the engine cannot do such a thing.
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

"""What runs in a contest of checkpoint protocols: sources, stages and hops, one instance of each on its workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steelyard.core import OptionError

NUMBER = "#"
"""Between the name of a stage and the number of the worker, in the name of an instance."""


@dataclass(frozen=True)
class Feed:
    """A source: rows of a replayable log, one part of which every worker reads.

    Parameters
    ----------
    name
        Of the source.
    share
        Of all rows of the job.
    row_seconds
        Processor time to read a row.
    hot
        Probability that a row has the hot key.
    hot_place, ids_per_row
        Keys are whole numbers that grow with the stream. Of each hundred one is hot, the one at this place; a row of
        the job brings so many new ones.
    broadcast
        Share of rows that go to every receiver.
    on
        Workers that have an instance; all of them where it is empty.
    """

    name: str
    share: float = 1.0
    row_seconds: float = 0.0
    hot: float = 0.0
    hot_place: int = 0
    ids_per_row: float = 0.25
    broadcast: float = 0.0
    on: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stage:
    """An operator.

    Parameters
    ----------
    name
        Of the operator.
    window
        Seconds after which everything that was kept is forgotten; None keeps it for ever.
    base_bytes
        What an instance keeps beside rows.
    on
        Workers that have an instance; all of them where it is empty.
    """

    name: str
    window: float | None = None
    base_bytes: float = 0.0
    on: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hop:
    """Rows from a source or stage to a stage, and what they cost there.

    Parameters
    ----------
    sender, receiver
        By name.
    keyed
        Whether a row goes to the worker of its key; otherwise it stays on its worker, on which it is a message too.
    message_bytes, row_bytes
        Of a message, and of each row in it.
    message_seconds, row_seconds
        Processor time of the receiver for a message, and for each row in it, beside reading it.
    gives
        Rows that the receiver gives for one, over each of its own hops.
    kept_bytes
        What a row adds to the receiver's state.
    feedback
        Whether it leads back.
    """

    sender: str
    receiver: str
    keyed: bool = False
    message_bytes: float = 0.0
    row_bytes: float = 100.0
    message_seconds: float = 0.0
    row_seconds: float = 0.0
    gives: float = 1.0
    kept_bytes: float = 0.0
    feedback: bool = False


@dataclass(frozen=True)
class Job:
    """A dataflow on so many workers.

    Parameters
    ----------
    name
        Of the job.
    feeds, stages, hops
        The graph; stages that send nowhere are sinks.
    workers
        Each has one instance of every source and stage that is on it, and one core for all of them.
    rows_per_message
        At most.
    """

    name: str
    feeds: tuple[Feed, ...]
    stages: tuple[Stage, ...]
    hops: tuple[Hop, ...]
    workers: int = 1
    rows_per_message: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1 or self.rows_per_message < 1:
            raise OptionError(f"{self.name}: workers and rows per message are at least 1")
        names = set(self.operators)
        for hop in self.hops:
            if hop.sender not in names or hop.receiver not in {one.name for one in self.stages}:
                raise OptionError(f"{self.name}: no stage for the hop from {hop.sender!r} to {hop.receiver!r}")
            if not hop.keyed and not set(self.hosts(hop.sender)) <= set(self.hosts(hop.receiver)):
                raise OptionError(f"{self.name}: {hop.receiver!r} is not on all workers of {hop.sender!r}")
        for name in names:
            if not set(self.hosts(name)) <= set(range(self.workers)):
                raise OptionError(f"{self.name}: {name!r} is on workers {self.hosts(name)} of {self.workers}")

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of sources and stages."""
        return (*(feed.name for feed in self.feeds), *(stage.name for stage in self.stages))

    @property
    def instances(self) -> int:
        """Of all sources and stages."""
        return sum(len(self.hosts(name)) for name in self.operators)

    def hosts(self, name: str) -> tuple[int, ...]:
        """The workers that have an instance of a source or stage."""
        on = {feed.name: feed.on for feed in self.feeds} | {stage.name: stage.on for stage in self.stages}
        return on[name] or tuple(range(self.workers))

    @property
    def cyclic(self) -> bool:
        """Whether a hop leads back."""
        return any(hop.feedback for hop in self.hops)

    @property
    def shuffles(self) -> int:
        """Hops that go from everybody to everybody."""
        return sum(hop.keyed for hop in self.hops)

    def on(self, workers: int) -> Job:
        """The same on so many workers; what instances keep beside rows is shared out."""
        shared = tuple(
            replace(stage, base_bytes=stage.base_bytes * self.workers / workers) if stage.base_bytes else stage
            for stage in self.stages
        )
        return replace(self, workers=workers, stages=shared)

    def into(self, name: str) -> tuple[Hop, ...]:
        """The hops that lead there."""
        return tuple(hop for hop in self.hops if hop.receiver == name)

    def away(self, name: str) -> tuple[Hop, ...]:
        """The hops that lead away from there."""
        return tuple(hop for hop in self.hops if hop.sender == name)

    def flows(self) -> dict[Hop, float]:
        """Rows over each hop for one row of the job, on all workers together.

        >>> chain = Job("j", (Feed("s"),), (Stage("a"), Stage("b")), (Hop("s", "a", gives=0.5), Hop("a", "b")))
        >>> [rows for rows in chain.flows().values()]
        [1.0, 0.5]
        """
        flows = dict.fromkeys(self.hops, 0.0)
        for _ in range(len(self.hops) + 40 * self.cyclic):
            for hop in self.hops:
                fed = [feed for feed in self.feeds if feed.name == hop.sender]
                if fed:
                    copies = 1 + fed[0].broadcast * (len(self.hosts(hop.receiver)) - 1) if hop.keyed else 1
                    flows[hop] = fed[0].share * copies
                else:
                    flows[hop] = sum(flows[one] * one.gives for one in self.into(hop.sender))
        return flows


def instance_name(operator: str, worker: int) -> str:
    """How an instance is called.

    >>> instance_name("join", 3)
    'join#3'
    """
    return f"{operator}{NUMBER}{worker}"

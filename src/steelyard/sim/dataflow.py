"""What runs on a simulated cluster: sources, operators, and the edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

import numpy as np

from steelyard.core import OptionError, Partitioner, TuplePolicy
from steelyard.core.dataflow import Route
from steelyard.core.topology import Link, Vertex, require_operator
from steelyard.grouping import Grouping, RoundRobin, Shortest, grouping, grouping_names
from steelyard.grouping.protocol import item_column
from steelyard.grouping.registry import is_grouping
from steelyard.partition import Hash, Shuffle, edge_policy, partitioner_names
from steelyard.sim.laws import Exactly, Law
from steelyard.workloads import Rate, Workload, parse_rate

ARRIVALS = ("even", "poisson")
WIRINGS = {one.value: one for one in Route if one.is_wiring}
COMPILED = (Hash, Shuffle, RoundRobin, Shortest)
"""Policies that a compiled loop decides as their objects would."""
BUILT_IN = (*WIRINGS, *(kind.name for kind in COMPILED))
"""Groupings for which no object is asked."""
AnyGrouping = str | TuplePolicy | Partitioner | Grouping


@dataclass(frozen=True)
class Source(Vertex):
    """A replayable log in as many partitions as the source has instances, and their readers.

    Rows come whether they are read or not. What has come and is not read yet is the lag.

    Parameters
    ----------
    name
        How edges and results call it.
    rate
        Rows per second of all partitions: a number, a rate of `steelyard.workloads`, or words for one.
    parallelism
        Partitions; each gets the same share of the rows.
    keys
        Where keys come from: a workload; a list, which is repeated; or None, every row another key.
    column
        The workload's column.
    arrivals
        `even`: as the rate says; `poisson`: at random, with that rate.
    rows
        How many there are in all; 0 has no end.
    service
        Time to read a row; nothing, if not given.
    machines
        Numbers of the machines of the instances; empty, the scenario deals them out.

    Examples
    --------
    >>> Source("bids", rate=1000, arrivals="poisson")
    Source(name='bids', rate=Constant(rows_per_second=1000.0), ...)
    """

    name: str
    rate: Rate | str | float
    parallelism: int = 1
    keys: Workload | Sequence[int] | None = None
    column: str = "key"
    arrivals: str = "even"
    rows: int = 0
    service: Law = field(default_factory=lambda: Exactly(0.0))
    machines: tuple[int, ...] = ()

    kind = "source"
    ports = 0
    threads, capacity, outputs, slowdown, window, cpu = 1, 0, 1.0, (), None, 1.0
    """As if it were an operator: what is read goes out, and the log has no end."""
    of_instances: ClassVar[tuple[str, ...]] = ("machines",)

    def __post_init__(self) -> None:
        if self.rate is None or isinstance(self.rate, bool):
            raise OptionError(f"rate of source {self.name!r} is rows per second, or a rate in words; got {self.rate!r}")
        object.__setattr__(self, "rate", parse_rate(self.rate))
        require_law(self.name, self.service)
        object.__setattr__(self, "machines", tuple(self.machines))
        _require_placed(self.name, self.parallelism, self.machines)
        if self.arrivals not in ARRIVALS:
            raise OptionError.unknown(f"arrivals of source {self.name!r}:", self.arrivals, ARRIVALS)
        if self.rows < 0:
            raise OptionError(f"rows of source {self.name!r} must be 0, for no end, or more, got {self.rows}")
        if isinstance(self.keys, Workload):
            if self.column not in self.keys.schema.names:
                raise OptionError.unknown(f"column of {self.keys.name}", self.column, self.keys.schema.names)
        elif self.keys is not None:
            if not len(self.keys):
                raise OptionError(f"keys of source {self.name!r} are an empty list: leave it out, or give some")
            if not all(isinstance(key, int | np.integer) for key in self.keys):
                raise OptionError(
                    f"keys of source {self.name!r} are whole numbers, or a workload such as Zipf(); got {self.keys!r}"
                )
            object.__setattr__(self, "keys", tuple(int(key) for key in self.keys))

    def __repr__(self) -> str:
        given = self.keys
        keys = f"{len(given)} in turn" if isinstance(given, tuple) else repr(given)
        return (
            f"Source(name={self.name!r}, rate={self.rate!r}, parallelism={self.parallelism}, keys={keys}, "
            f"arrivals={self.arrivals!r}, rows={self.rows or 'no end'}, service={self.service!r})"
        )


@dataclass(frozen=True)
class Window:
    """Windows by the clock, one after the other or with a slide: when one ends, a result comes out for each key in it.

    A tuple belongs to the window in which its service ends, and nothing comes out of the tuple itself. Results have the
    key, and the age, of the last tuple that went into them. An instance works on them before the tuples that wait, and
    sends all of them when it is done.

    Parameters
    ----------
    seconds
        Length of a window; the first begins at time 0.
    per_result
        Seconds of work for each result.
    bytes_per_key
        Of its machine's memory, for each key, until its result is sent.
    slide
        Seconds between the ends of two windows, of which the length is a multiple; 0 for the length. Flows alone know
        windows that slide, and ...
    new_keys
        ... keys that a tuple brings on average, where windows of a stream always see new ones; 0 takes what a sample of
        the source has, as if all of its keys were alike.
    """

    seconds: float
    per_result: float = 0.0
    bytes_per_key: float = 0.0
    slide: float = 0.0
    new_keys: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.seconds < inf:
            raise OptionError(f"seconds of a window must be above 0, got {self.seconds!r}")
        for name in ("per_result", "bytes_per_key", "slide", "new_keys"):
            if not 0 <= getattr(self, name) < inf:
                raise OptionError(f"{name} of a window must be 0 or more, got {getattr(self, name)!r}")
        if self.slide and abs(self.panes * self.slide - self.seconds) > 1e-9 * self.seconds:
            raise OptionError(f"a window of {self.seconds:g} s is no multiple of its slide of {self.slide:g} s")

    @property
    def panes(self) -> int:
        """Slides in a window.

        >>> Window(300.0, slide=60.0).panes
        5
        """
        return round(self.seconds / self.slide) if self.slide else 1


@dataclass(frozen=True)
class Operator(Vertex):
    """An operator in several instances, each with a queue and one or more threads that serve it.

    Parameters
    ----------
    name
        How edges and results call it.
    service
        Time that a tuple takes.
    parallelism
        How many instances there are, each with its own queue.
    threads
        Of an instance: so many tuples of its queue are served at once.
    capacity
        Tuples that an instance's queue holds; a sender that finds it full waits, and loses nothing. 0 has no bound.
    outputs
        Tuples that come out for one that goes in, on each edge: 0.5 is a filter that keeps half of them at random.
    window
        If given, tuples are gathered by their keys, and results come out when a window ends.
    cpu
        Share of its service time for which it uses a processor; for the rest a thread waits, for memory or for a disk.
        Tuple by tuple it is 1.
    slowdown
        For each instance, what multiplies its service times; empty stands for 1.
    machines
        Numbers of the machines of the instances; empty, the scenario deals them out.

    Examples
    --------
    >>> Operator("join", Exactly(0.001), parallelism=4, capacity=100).parallelism
    4
    """

    name: str
    service: Law
    parallelism: int = 1
    threads: int = 1
    capacity: int = 0
    outputs: float = 1.0
    slowdown: tuple[float, ...] = ()
    machines: tuple[int, ...] = ()
    window: Window | None = None
    cpu: float = 1.0

    kind = "operator"
    ports = 1
    of_instances: ClassVar[tuple[str, ...]] = ("machines", "slowdown")

    def __post_init__(self) -> None:
        object.__setattr__(self, "machines", tuple(self.machines))
        object.__setattr__(self, "slowdown", tuple(self.slowdown))
        _require_placed(self.name, self.parallelism, self.machines)
        require_law(self.name, self.service)
        require_whole(f"threads of operator {self.name!r}", self.threads, 1)
        require_whole(f"capacity of operator {self.name!r}, where 0 has no bound,", self.capacity, 0)
        if not self.outputs >= 0:
            raise OptionError(f"outputs of operator {self.name!r} must be 0 or more, got {self.outputs}")
        if self.window is not None and not isinstance(self.window, Window):
            raise OptionError(f"window of operator {self.name!r} is a Window, as Window(10.0), got {self.window!r}")
        if not 0 < self.cpu <= 1:
            raise OptionError(f"cpu of operator {self.name!r} must be above 0 and at most 1, got {self.cpu!r}")
        if self.window and self.outputs != 1:
            raise OptionError(
                f"operator {self.name!r} has a window, which puts out a result for each key: leave outputs"
            )
        if self.slowdown and (len(self.slowdown) != self.parallelism or min(self.slowdown) <= 0):
            raise OptionError(
                f"slowdown of operator {self.name!r} is {self.slowdown}: "
                f"give a number above 0 for each of the {self.parallelism} instances"
            )


@dataclass(frozen=True)
class Edge(Link):
    """Who sends to whom, and how the receiver's instance is chosen.

    Parameters
    ----------
    sender, receiver
        Names of a source or operator, and of an operator.
    grouping
        A wiring of `steelyard.core.dataflow.Route`, by its word: `forward`, `hash`, `broadcast`, `global`; or any
        policy of `steelyard.partition` or `steelyard.grouping`, by name or as an object.
        Each sending instance is a partitioner, or a scheduler, of its own.
    tuple_bytes
        Size of a tuple, for the network.
    share
        1, all tuples that come out of the sender go over this edge. Less makes it a branch: a tuple takes exactly one
        of its sender's branches, this one with this chance, and the chances of all of them add up to 1.
    feedback
        Whether it leads back, to an operator at or before its sender: a cycle. Its receiver's queue must have no bound,
        since all would wait for each other when it is full, and fewer tuples must come round than went in.
    exchange_every
        Seconds between two rounds in which partitioners learn: from each other, where their policy lets them cooperate,
        or from what their decisions cost, where they observe it, as those of `auto` do.

    Examples
    --------
    >>> Edge("bids", "count", "pk2").policy()
    TwoChoices(window=60000, slide=1000)
    >>> Edge("bids", "enrich", "assg?seed=7").by_cost()
    StormShuffle(reshuffle=True, seed=7)
    """

    sender: str
    receiver: str
    grouping: AnyGrouping = "shuffle"
    tuple_bytes: float = 0.0
    exchange_every: float = 1.0
    share: float = 1.0
    feedback: bool = False

    def __post_init__(self) -> None:
        if not self.exchange_every > 0:
            raise OptionError(f"exchange_every of edge {self} must be above 0 seconds")
        if isinstance(self.grouping, str) and self.grouping not in BUILT_IN:
            name = self.grouping.partition("?")[0]
            if name not in (names := {*BUILT_IN, *partitioner_names(), *grouping_names()}):
                raise OptionError.unknown("grouping", name, names)
        if not self.tuple_bytes >= 0:
            raise OptionError(f"tuple_bytes of edge {self} must be 0 or more")
        if not 0 < self.share <= 1:
            raise OptionError(f"share of edge {self} must be above 0 and at most 1, got {self.share!r}")
        if isinstance(self.grouping, type):
            name = self.grouping.__name__
            raise OptionError(f"grouping of edge {self} is the class {name}: give {name}()")
        self.policy()
        found = self.by_cost()
        if found and (column := item_column(found)):
            raise OptionError(
                f"cost_of={column!r} of edge {self}: rows of the simulator have no "
                "columns, and costs go by the key: leave cost_of out"
            )

    def policy(self) -> TuplePolicy | None:
        """The policy object that decides, or None where the loop does."""
        if self.built_in or is_grouping(self.grouping):
            return None
        return edge_policy(self.grouping)  # type: ignore[arg-type]  # it is no grouping

    def by_cost(self) -> Grouping | None:
        """The grouping that goes by what tuples cost, if it does."""
        return grouping(self.grouping) if not self.built_in and is_grouping(self.grouping) else None  # type: ignore[arg-type]

    @property
    def label(self) -> str:
        """Its grouping, and its share where it is a branch."""
        decider = self.by_cost() or self.policy()
        return (self.built_in or (decider.name if decider else "")) + f", {self.share:g}" * self.is_branch

    def reached(self, sender: int, receivers: int) -> Sequence[int]:
        """One instance where it leads forward or to the first, otherwise all."""
        if self.wiring is Route.GLOBAL:
            return (0,)
        return (sender % receivers,) if self.wiring is Route.FORWARD else range(receivers)

    @property
    def is_branch(self) -> bool:
        """Whether a tuple takes either this edge or another branch of the sender."""
        return self.share < 1

    @property
    def built_in(self) -> str:
        """The name of the grouping where no object is asked, otherwise empty."""
        if isinstance(self.grouping, str):
            return self.grouping if self.grouping in BUILT_IN else ""
        return self.grouping.name if type(self.grouping) in COMPILED else ""

    @property
    def wiring(self) -> Route | None:
        """How it is wired, where no policy decides."""
        return WIRINGS.get(self.built_in)


def require_law(name: str, service: Law) -> None:
    """Raise OptionError unless this is a law of service times."""
    if not isinstance(service, Law):
        raise OptionError(
            f"service of {name!r} is a law, as Exactly(0.001) or Exponential(0.001), in seconds; got {service!r}"
        )


def require_whole(what: str, number: int, least: int) -> None:
    """Raise OptionError unless this is a whole number that is large enough."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise OptionError(f"{what} must be a whole number, got {number!r}")
    if number < least:
        raise OptionError(f"{what} must be {least} or more, got {number}")


def _require_placed(name: str, parallelism: int, machines: tuple[int, ...]) -> None:
    require_operator(name, parallelism)
    if machines and len(machines) != parallelism:
        raise OptionError(
            f"machines of {name!r} are {len(machines)} numbers: give one for each of the {parallelism} instances"
        )

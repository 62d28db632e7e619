"""A dataflow: operators that run in parallel instances, and the edges on which rows go from one to the next.

This is the graph alone. What an operator does with rows is its `Logic`, of which the graph knows no more than
how many inputs it has, which columns go in and come out, and by which columns rows must meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from steelyard.core.errors import OptionError


class DataflowError(OptionError):
    """A dataflow that cannot run as it is described."""


@runtime_checkable
class Logic(Protocol):
    """What an operator does, as far as the graph needs to know. Called while a dataflow is checked."""

    @property
    def kind(self) -> str:
        """`source`, `map`, `filter` …: what a picture calls it."""
        ...

    @property
    def ports(self) -> int:
        """How many inputs it tells apart: 0 for a source, 2 for a join."""
        ...

    @property
    def emits(self) -> bool:
        """False for a sink."""
        ...

    @property
    def waits_for_time(self) -> bool:
        """Whether it gives results when event time has passed them, as windows do."""
        ...

    def keys(self, port: int) -> tuple[str, ...] | None:
        """The columns by which rows of this input must meet in one instance; None where any instance will do."""
        ...

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns that come out, from those that go in at each port. OptionError for one that is not there."""
        ...


class Route(Enum):
    """How an edge chooses the instance that a row goes to."""

    FORWARD = "forward"
    """Instance i to instance i: both sides have the same parallelism."""
    HASH = "hash"
    """By a hash of the key, so that rows of a key meet."""
    SHUFFLE = "shuffle"
    """In turn."""
    BROADCAST = "broadcast"
    """To every instance."""
    POLICY = "policy"
    """As a partitioner or tuple policy says, which may split a key over instances."""
    COST = "cost"
    """As a grouping of shuffle edges says, which weighs what rows will cost the instances."""


@dataclass(frozen=True)
class Grouping:
    """The grouping of an edge.

    Parameters
    ----------
    route
        How an instance is chosen.
    columns
        The key, where the choice depends on one; what costs depend on, for `Route.COST`.
    policy
        For `Route.POLICY`: a name in `steelyard.partition`, with parameters, or an object. For `Route.COST`: a grouping
        of `steelyard.grouping`.

    Examples
    --------
    >>> print(Grouping(Route.HASH, ("user", "day")), Grouping(Route.POLICY, ("user",), "dalton"))
    hash(user, day) dalton(user)
    """

    route: Route
    columns: tuple[str, ...] = ()
    policy: Any = None

    def __post_init__(self) -> None:
        if self.route in (Route.HASH, Route.POLICY) and not self.columns:
            raise DataflowError(f"grouping {self.route.value!r} needs the columns of a key: key_by('user')")
        if (self.route in (Route.POLICY, Route.COST)) != (self.policy is not None):
            raise DataflowError(f"grouping {self.route.value!r} with policy={self.policy!r}: give both, or neither")

    @property
    def joins_keys(self) -> bool:
        """Whether all rows of a key reach one instance."""
        return self.route is Route.HASH

    def __str__(self) -> str:
        name = self.route.value
        if self.policy is not None:
            name = self.policy if isinstance(self.policy, str) else str(getattr(self.policy, "name", self.policy))
        return f"{name}({', '.join(self.columns)})" if self.columns else name


FORWARD, SHUFFLE, BROADCAST = Grouping(Route.FORWARD), Grouping(Route.SHUFFLE), Grouping(Route.BROADCAST)


@dataclass(frozen=True)
class Operator:
    """An operator by name, its logic, and in how many instances it runs."""

    name: str
    logic: Logic
    parallelism: int = 1

    def __post_init__(self) -> None:
        if not self.name or any(sign in self.name for sign in "/#\n"):
            raise DataflowError(f"an operator's name is not empty and has no '/' or '#' in it, got {self.name!r}")
        if self.parallelism < 1:
            raise DataflowError(f"operator {self.name!r}: parallelism must be 1 or more, got {self.parallelism}")


@dataclass(frozen=True)
class Edge:
    """Rows from one operator to an input of another.

    `feedback` marks the edge that closes a cycle. Rows on it are taken before others and are never held back,
    since an operator that waits for room in its own input would wait for ever.
    """

    source: str
    target: str
    grouping: Grouping = FORWARD
    port: int = 0
    feedback: bool = False

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class Instance(NamedTuple):
    """One of the parallel instances of an operator."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}#{self.number}"

    @classmethod
    def parse(cls, text: str) -> Instance:
        """The instance that `str` gave.

        >>> Instance.parse("count#3")
        Instance(operator='count', number=3)
        """
        name, _, number = text.rpartition("#")
        return cls(name, int(number))


@dataclass(frozen=True)
class Placement:
    """Which worker hosts which instance.

    Examples
    --------
    >>> Placement({Instance("count", 0): 0, Instance("count", 1): 1}, workers=2).hosted(1)
    [Instance(operator='count', number=1)]
    """

    worker_of: Mapping[Instance, int]
    workers: int

    def __post_init__(self) -> None:
        for instance, worker in self.worker_of.items():
            if not 0 <= worker < self.workers:
                raise DataflowError(f"{instance} is placed on worker {worker}: there are {self.workers}, from 0")

    def hosted(self, worker: int) -> list[Instance]:
        """The instances of one worker, in order."""
        return sorted(instance for instance, at in self.worker_of.items() if at == worker)

    @classmethod
    def spread(cls, dataflow: Dataflow, workers: int) -> Placement:
        """Instance i of every operator on worker i mod `workers`: neighbours on a forward edge stay together."""
        if workers < 1:
            raise DataflowError(f"a dataflow needs at least one worker, got workers={workers}")
        return cls({one: one.number % workers for one in dataflow.instances}, workers)


@dataclass(frozen=True)
class Dataflow:
    """Operators and edges, checked when made.

    Parameters
    ----------
    name
        For pictures and logs.
    operators, edges
        The graph. Several edges may lead to one input, which then gets the rows of all.

    Raises
    ------
    DataflowError
        For anything that keeps it from running; the operator, edge or column is named.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    schemas: Mapping[str, pa.Schema] = field(init=False, repr=False, compare=False)
    """The columns that each operator gives; those that it takes, for a sink."""

    def __post_init__(self) -> None:
        from steelyard.core.dataflow_checks import checked_schemas  # noqa: PLC0415 - it checks what is defined here

        object.__setattr__(self, "schemas", checked_schemas(self))

    @cached_property
    def by_name(self) -> Mapping[str, Operator]:
        """Operators by name."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Every instance of every operator, in the order of the operators."""
        return tuple(Instance(one.name, number) for one in self.operators for number in range(one.parallelism))

    @property
    def sources(self) -> tuple[Operator, ...]:
        """Operators that nothing leads to."""
        return tuple(one for one in self.operators if one.logic.ports == 0)

    @property
    def sinks(self) -> tuple[Operator, ...]:
        """Operators that nothing comes out of."""
        return tuple(one for one in self.operators if not one.logic.emits)

    @property
    def cyclic(self) -> bool:
        """Whether there is a feedback edge."""
        return any(edge.feedback for edge in self.edges)

    def into(self, operator: str) -> list[Edge]:
        """Edges that lead to an operator."""
        return [edge for edge in self.edges if edge.target == operator]

    def out_of(self, operator: str) -> list[Edge]:
        """Edges that come from an operator."""
        return [edge for edge in self.edges if edge.source == operator]

    def channels(self) -> list[Channel]:
        """Every pair of instances between which rows may go, numbered from 0 in the same way everywhere."""
        found: list[Channel] = []
        for number, edge in enumerate(self.edges):
            senders = self.by_name[edge.source].parallelism
            receivers = self.by_name[edge.target].parallelism
            for sender in range(senders):
                reached = [sender] if edge.grouping.route is Route.FORWARD else range(receivers)
                for receiver in reached:
                    pair = Instance(edge.source, sender), Instance(edge.target, receiver)
                    found.append(Channel(len(found), number, *pair, edge.port, edge.feedback))
        return found

    def rescaled(self, parallelism: Mapping[str, int]) -> Dataflow:
        """The same dataflow with other numbers of instances."""
        for name in parallelism:
            if name not in self.by_name:
                raise DataflowError(str(OptionError.unknown("operator", name, self.by_name)))
        operators = tuple(
            Operator(one.name, one.logic, parallelism.get(one.name, one.parallelism)) for one in self.operators
        )
        return Dataflow(self.name, operators, self.edges)


class Channel(NamedTuple):
    """An ordered pair of instances: what one sends, the other gets in the same order."""

    number: int
    edge: int
    sender: Instance
    receiver: Instance
    port: int
    feedback: bool


def topological(names: Iterable[str], successors: Callable[[str], Iterable[str]]) -> tuple[list[str], list[str]]:
    """Names so that none stands before one that leads to it; and those on or behind a cycle, which cannot.

    >>> topological("abc", {"a": "c", "b": "", "c": "b"}.__getitem__)
    (['a', 'c', 'b'], [])
    """
    names = list(names)
    waiting = dict.fromkeys(names, 0)
    for name in names:
        for after in successors(name):
            waiting[after] += 1
    ready = [name for name in names if not waiting[name]]
    for name in ready:  # grows while it is walked
        for after in successors(name):
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return ready, [name for name in names if waiting[name]]

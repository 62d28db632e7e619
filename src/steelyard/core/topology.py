"""What runs where: operators in parallel instances, edges between them, and the workers that have the instances.

A resident dataflow is a topology with code (`core.dataflow`), a scenario of the simulator is one with costs. This is
what both are: the graph, its instances and channels, and their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from steelyard.core.errors import OptionError


class DataflowError(OptionError):
    """A dataflow that cannot run as it is described."""


class Vertex:
    """An operator, as far as the graph needs to know; for frozen dataclasses."""

    name: str
    parallelism: int
    of_instances: ClassVar[tuple[str, ...]] = ()
    """Fields that say something of each single instance."""

    @property
    def kind(self) -> str:
        """`source`, `map`, `filter` …: what a picture calls it."""
        raise NotImplementedError

    @property
    def ports(self) -> int:
        """How many inputs it tells apart: 0 for a source, 2 for a join."""
        raise NotImplementedError

    def rescaled(self, parallelism: int) -> Self:
        """The same in so many instances; if those are others, nothing is said of single ones."""
        if parallelism == self.parallelism:
            return self
        made: Any = self
        changed: Self = replace(made, parallelism=parallelism, **dict.fromkeys(self.of_instances, ()))
        return changed


class Link:
    """Rows from one operator to an input of another; `feedback` marks the edge that closes a cycle."""

    sender: str
    receiver: str
    grouping: Any
    feedback: bool
    port: int = 0

    @property
    def label(self) -> str:
        """How it chooses between instances, in a word or two."""
        return str(self.grouping)

    def reached(self, sender: int, receivers: int) -> Sequence[int]:
        """The instances of the receiver, of so many, to which this instance of the sender may send."""
        return range(receivers)

    def __str__(self) -> str:
        return f"{self.sender} -> {self.receiver}"


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
        if not (name and number.isascii() and number.isdigit()):
            raise OptionError(f"{text!r} is no instance: give its operator and its number from 0, as in 'count#0'")
        return cls(name, int(number))


class Channel(NamedTuple):
    """An ordered pair of instances: what one sends, the other gets in the same order."""

    number: int
    edge: int
    sender: Instance
    receiver: Instance
    port: int
    feedback: bool


V = TypeVar("V", bound=Vertex)
E = TypeVar("E", bound=Link)


class Topology(Generic[V, E]):
    """Operators and the edges between them, for frozen dataclasses that have both."""

    name: str
    operators: tuple[V, ...]
    edges: tuple[E, ...]

    @cached_property
    def by_name(self) -> Mapping[str, V]:
        """Operators by name."""
        return {operator.name: operator for operator in self.operators}

    def operator(self, name: str) -> V:
        """The operator of this name; DataflowError where there is none."""
        if name not in self.by_name:
            raise DataflowError(str(OptionError.unknown("operator", name, self.by_name)))
        return self.by_name[name]

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Every instance of every operator, in the order of the operators."""
        return tuple(Instance(one.name, number) for one in self.operators for number in range(one.parallelism))

    @property
    def sources(self) -> tuple[V, ...]:
        """Operators that nothing leads to."""
        return tuple(one for one in self.operators if one.ports == 0)

    @property
    def cyclic(self) -> bool:
        """Whether there is a feedback edge."""
        return any(edge.feedback for edge in self.edges)

    def into(self, operator: str) -> list[E]:
        """Edges that lead to an operator."""
        return [edge for edge in self.edges if edge.receiver == operator]

    def out_of(self, operator: str) -> list[E]:
        """Edges that come from an operator."""
        return [edge for edge in self.edges if edge.sender == operator]

    def after(self, operator: str) -> list[str]:
        """Operators to which edges lead on from this one, and none back."""
        return [edge.receiver for edge in self.out_of(operator) if not edge.feedback]

    def reached(self, start: str) -> set[str]:
        """An operator and all to which ways lead on from it."""
        found, waiting = {start}, [start]
        while waiting:
            new = set(self.after(waiting.pop())) - found
            found |= new
            waiting += new
        return found

    def channels(self) -> list[Channel]:
        """Every pair of instances between which rows may go, numbered from 0 in the same way everywhere."""
        found: list[Channel] = []
        for number, edge in enumerate(self.edges):
            receivers = self.by_name[edge.receiver].parallelism
            for sender in range(self.by_name[edge.sender].parallelism):
                for receiver in edge.reached(sender, receivers):
                    pair = Instance(edge.sender, sender), Instance(edge.receiver, receiver)
                    found.append(Channel(len(found), number, *pair, edge.port, edge.feedback))
        return found

    def rescaled(self, parallelism: Mapping[str, int]) -> Self:
        """The same with other numbers of instances."""
        if all(self.operator(name).parallelism == number for name, number in parallelism.items()):
            return self
        operators = tuple(one.rescaled(parallelism.get(one.name, one.parallelism)) for one in self.operators)
        made: Any = self
        changed: Self = replace(made, operators=operators)
        return changed

    def check_graph(self) -> None:
        """Raise DataflowError unless names are unique and every edge, port and cycle is as it must be."""
        twice = [name for name, times in Counter(one.name for one in self.operators).items() if times > 1]
        if twice:
            raise DataflowError(f"two operators are called {twice[0]!r}: give one of them another name=")
        if not self.sources:
            raise DataflowError(f"{self.name!r} has no source: begin with one")
        for edge in self.edges:
            self._check_ends(edge)
        for operator in self.operators:
            fed = {edge.port for edge in self.into(operator.name) if not edge.feedback}
            for port in range(operator.ports):
                if port not in fed:
                    which = f"input {port} of operator" if operator.ports > 1 else "operator"
                    raise DataflowError(
                        f"{which} {operator.name!r} is unconnected: no edge leads to it that is not a feedback edge"
                    )
        for edge in self.edges:
            if edge.feedback and edge.sender not in self.reached(edge.receiver):
                raise DataflowError(
                    f"feedback edge {edge} closes no cycle: {edge.receiver!r} does not lead to its start"
                )

    def _check_ends(self, edge: E) -> None:
        for end in (edge.sender, edge.receiver):
            if end not in self.by_name:
                raise DataflowError(f"edge {edge}: {OptionError.unknown('operator', end, self.by_name)}")
        ports = self.by_name[edge.receiver].ports
        if not ports:
            raise DataflowError(f"edge {edge}: {edge.receiver!r} is a source, and nothing leads to a source")
        if not 0 <= edge.port < ports:
            raise DataflowError(f"edge {edge}: {edge.receiver!r} has no input {edge.port}, only {ports}, from 0")


@dataclass(frozen=True)
class Placement:
    """Which worker, or machine, hosts which instance.

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

    def of(self, operator: str) -> list[int]:
        """The workers of an operator's instances, in their order."""
        return [worker for one, worker in sorted(self.worker_of.items()) if one.operator == operator]

    @classmethod
    def spread(cls, topology: Topology[Any, Any], workers: int) -> Placement:
        """Instance i of every operator on worker i mod `workers`: neighbours on a forward edge stay together."""
        if workers < 1:
            raise DataflowError(f"a dataflow needs at least one worker, got workers={workers}")
        return cls({one: one.number % workers for one in topology.instances}, workers)

    @classmethod
    def dealt(cls, topology: Topology[Any, Any], workers: int, fixed: Mapping[Instance, int]) -> Placement:
        """All instances but those that are fixed to the workers in turn, as Storm's default scheduler deals them."""
        others = [one for one in topology.instances if one not in fixed]
        return cls({one: at % workers for at, one in enumerate(others)} | dict(fixed), workers)


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


def require_operator(name: str, parallelism: int) -> None:
    """Raise DataflowError unless an operator may be called so, and run in so many instances."""
    if not name or any(sign in name for sign in "/#\n"):
        raise DataflowError(f"an operator's name is not empty and has no '/' or '#' in it, got {name!r}")
    if not hasattr(parallelism, "__index__") or isinstance(parallelism, bool) or parallelism < 1:
        raise DataflowError(f"parallelism of {name!r} must be a whole number, 1 or more, got {parallelism!r}")

"""A scenario: what runs where. It is all that a simulation needs besides a seed and a duration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isclose
from typing import Any

import numpy as np

from steelyard.core import OptionError
from steelyard.core.shown import Shown, counted
from steelyard.grouping.protocol import needs_costs
from steelyard.sim.dataflow import AnyGrouping, Edge, Operator, Source
from steelyard.sim.hardware import Machine, Network
from steelyard.sim.laws import Exactly, PerItem

INSTANT = Network()
"""A network that costs nothing."""

Vertex = Source | Operator


@dataclass(frozen=True, repr=False)
class Scenario(Shown):
    """A dataflow on a cluster.

    Parameters
    ----------
    vertices
        Sources and operators, senders before their receivers.
    edges
        Between them, one at most from a sender to a receiver. What has no edge leaving it is where tuples leave the
        cluster. Those with `feedback` lead back.
    machines
        The cluster; empty, every instance has a machine of its own with a core for each thread.
    network
        Between machines.

    Examples
    --------
    >>> from steelyard.sim import Exactly
    >>> scenario = Scenario(
    ...     vertices=(Source("log", rate=100), Operator("map", Exactly(0.004), instances=2)),
    ...     edges=(Edge("log", "map", "hash"),),
    ...     machines=(Machine(cores=2),),
    ... )
    >>> print(scenario)
    Scenario: 1 machine, 3 instances
      log: Source, 1 instance, Constant(rows_per_second=100.0)
      map: Operator, 2 instances, Exactly(seconds=0.004)
      log -> map: hash
    """

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...] = ()
    machines: tuple[Machine, ...] = ()
    network: Network = INSTANT

    def __post_init__(self) -> None:
        for name, kinds in (("vertices", (Source, Operator)), ("edges", (Edge,)), ("machines", (Machine,))):
            object.__setattr__(self, name, _listed(name, getattr(self, name), kinds))
        names = [vertex.name for vertex in self.vertices]
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"two vertices are called {name!r}: give each a name of its own")
        if not any(isinstance(vertex, Source) for vertex in self.vertices):
            raise OptionError("a scenario needs a source, and there is none among its vertices")
        ends = [(edge.sender, edge.receiver) for edge in self.edges]
        for edge in self.edges:
            if ends.count((edge.sender, edge.receiver)) > 1:
                raise OptionError(
                    f"edge {edge.sender} to {edge.receiver} is given twice: leave one out, or, for two copies of each "
                    "tuple, put an operator on the way of the second"
                )
            self._check_edge(edge, names)
        for vertex in self.vertices:
            self._check_vertex(vertex)
        self._check_cycles()

    @classmethod
    def chain(
        cls,
        *vertices: Vertex,
        grouping: AnyGrouping = "shuffle",
        machines: Sequence[Machine] = (),
        network: Network = INSTANT,
    ) -> Scenario:
        """A source and operators in a row, with the same grouping on every edge."""
        edges = [Edge(a.name, b.name, grouping) for a, b in pairwise(vertices)]
        return cls(tuple(vertices), tuple(edges), _listed("machines", machines, (Machine,)), network)

    def with_instances(self, **instances: int) -> Scenario:
        """The same with other numbers of instances; places and slowdowns of those that change are dealt anew."""
        known = {vertex.name for vertex in self.vertices}
        for name in instances:
            if name not in known:
                raise OptionError.unknown("vertex", name, known)
        return replace(self, vertices=tuple(_resized(vertex, instances) for vertex in self.vertices))

    def vertex(self, name: str) -> Vertex:
        """The source or operator of this name."""
        for vertex in self.vertices:
            if vertex.name == name:
                return vertex
        raise OptionError.unknown("vertex", name, [vertex.name for vertex in self.vertices])

    def placement(self) -> dict[str, tuple[int, ...]]:
        """The machine of every instance. What is not placed is dealt to the machines in turn, one after the other.

        That is what Storm's default scheduler does: executor i to worker i mod n.
        """
        places: dict[str, tuple[int, ...]] = {}
        dealt = 0
        for vertex in self.vertices:
            if vertex.machines:
                places[vertex.name] = vertex.machines
                continue
            modulus = len(self.machines) or sum(one.instances for one in self.vertices)
            places[vertex.name] = tuple((dealt + i) % modulus for i in range(vertex.instances))
            dealt += vertex.instances
        return places

    def _check_edge(self, edge: Edge, names: list[str]) -> None:
        for end in (edge.sender, edge.receiver):
            if end not in names:
                raise OptionError.unknown("vertex", end, names)
        if isinstance(self.vertex(edge.receiver), Source):
            raise OptionError(f"edge {edge.sender} to {edge.receiver}: a source receives nothing")
        backwards = names.index(edge.sender) >= names.index(edge.receiver)
        if backwards and not edge.feedback:
            raise OptionError(
                f"edge {edge.sender} to {edge.receiver} goes backwards: list senders before their receivers, or, where "
                "it closes a cycle, give it feedback=True"
            )
        if edge.feedback and not backwards:
            raise OptionError(f"edge {edge.sender} to {edge.receiver} leads on, not back: leave feedback out")
        receiver = self.vertex(edge.receiver)
        if edge.feedback and isinstance(receiver, Operator) and receiver.capacity:
            raise OptionError(
                f"edge {edge.sender} to {edge.receiver} closes a cycle, and the queue of {edge.receiver!r} has a "
                "bound: when it is full all would wait for each other; give it capacity=0"
            )
        self._check_costs(edge)

    def _check_costs(self, edge: Edge) -> None:
        found, receiver = edge.by_cost(), self.vertex(edge.receiver)
        if found and needs_costs(found) and not isinstance(receiver.service, Exactly | PerItem):
            raise OptionError(
                f"edge {edge.sender} to {edge.receiver}: {found.name} must know what a tuple costs before it is "
                f"executed, which {receiver.service!r} does not tell: give {edge.receiver!r} Exactly or PerItem"
            )

    def _check_cycles(self) -> None:
        """Refuse cycles in which tuples multiply: they would never end."""
        if not self.has_cycles:
            return
        names = [vertex.name for vertex in self.vertices]
        sent = np.zeros((len(names), len(names)))
        for edge in self.edges:
            sender, receiver = self.vertex(edge.sender), self.vertex(edge.receiver)
            copies = receiver.instances if edge.built_in == "broadcast" else 1
            outputs = sender.outputs if isinstance(sender, Operator) else 1.0
            sent[names.index(edge.sender), names.index(edge.receiver)] += outputs * edge.share * copies
        gain = float(np.abs(np.linalg.eigvals(sent)).max())
        if gain >= 1 - 1e-9:
            raise OptionError(
                f"tuples do not get fewer on their way round a cycle (a factor of {gain:.3g} an edge) and would never "
                "come out: lower the share of its edges or the outputs of its operators"
            )

    @property
    def has_cycles(self) -> bool:
        """Whether an edge leads back."""
        return any(edge.feedback for edge in self.edges)

    def _check_vertex(self, vertex: Vertex) -> None:
        forward = [edge.receiver for edge in self.edges if not edge.feedback]
        if isinstance(vertex, Operator) and vertex.name not in forward:
            raise OptionError(f"nobody sends to operator {vertex.name!r}: add an edge, or take it out")
        self._check_branches(vertex)
        if vertex.name not in self._ways_out():
            raise OptionError(
                f"all ways from {vertex.name!r} lead round, so tuples would leave the cluster nowhere: add an operator "
                "and an edge that leads on"
            )
        if not self.machines and vertex.machines:
            raise OptionError(f"{vertex.name!r} is placed on machines, and the scenario has none: list them")
        for machine in vertex.machines:
            if not 0 <= machine < len(self.machines):
                raise OptionError(
                    f"{vertex.name!r} is placed on machine {machine}: there are {len(self.machines)}, numbered from 0"
                )

    def _ways_out(self) -> set[str]:
        """Vertices from which a way leads to one without edges, which is where tuples leave."""
        found = {vertex.name for vertex in self.vertices} - {edge.sender for edge in self.edges}
        for _ in self.vertices:
            found |= {edge.sender for edge in self.edges if edge.receiver in found}
        return found

    def _check_branches(self, vertex: Vertex) -> None:
        branches = [edge for edge in self.edges if edge.sender == vertex.name and edge.is_branch]
        if not branches or isclose(together := sum(edge.share for edge in branches), 1.0, abs_tol=1e-9):
            return
        shares = ", ".join(f"{edge.share:g} to {edge.receiver!r}" for edge in branches)
        remedy = "leave share out where every tuple is to go"
        if together < 1:
            remedy = "add the branch that the others take, or let an operator before it drop them with outputs"
        raise OptionError(
            f"shares of the branches of {vertex.name!r} add up to {together:g} ({shares}) and must to 1, since a tuple "
            f"takes exactly one of them: {remedy}"
        )

    def __str__(self) -> str:
        total = sum(vertex.instances for vertex in self.vertices)
        lines = [f"Scenario: {counted(len(self.machines) or total, 'machine')}, {counted(total, 'instance')}"]
        for vertex in self.vertices:
            kind, of = ("Source", vertex.rate) if isinstance(vertex, Source) else ("Operator", vertex.service)
            lines.append(f"  {vertex.name}: {kind}, {counted(vertex.instances, 'instance')}, {of!r}")
        for edge in self.edges:
            grouping = edge.built_in or edge.by_cost() or edge.policy()
            share = f", a branch with {edge.share:g} of the tuples" if edge.is_branch else ""
            lines.append(f"  {edge.sender} -> {edge.receiver}: {grouping}{share}{', back' if edge.feedback else ''}")
        return "\n".join(lines)


def _listed(name: str, given: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    listed = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(one, kinds) for one in listed):
        words = " or ".join(kind.__name__ for kind in kinds)
        several = kinds == (Machine,) and isinstance(given, int)
        hint = f": write machines=[Machine(cores=4)] * {given}" if several else ""
        raise OptionError(f"{name} of a scenario are a list of {words}, got {given!r}{hint}")
    return listed


def _resized(vertex: Vertex, instances: dict[str, int]) -> Vertex:
    count = instances.get(vertex.name, vertex.instances)
    if count == vertex.instances:
        return vertex
    if isinstance(vertex, Source):
        return replace(vertex, instances=count, machines=())
    return replace(vertex, instances=count, machines=(), slowdown=())

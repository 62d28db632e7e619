"""A scenario: what runs where. It is all that a simulation needs besides a seed and a duration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isclose
from typing import Any, ClassVar

import numpy as np

from steelyard.core import OptionError
from steelyard.core.dataflow import Route
from steelyard.core.shown import Shown, counted
from steelyard.core.topology import Instance, Placement, Topology
from steelyard.grouping.protocol import needs_costs
from steelyard.sim.dataflow import AnyGrouping, Edge, Operator, Source
from steelyard.sim.hardware import Machine, Network
from steelyard.sim.laws import Exactly, PerItem

INSTANT = Network()
"""A network that costs nothing."""

Vertex = Source | Operator


@dataclass(frozen=True, repr=False)
class Scenario(Shown, Topology[Vertex, Edge]):
    """A topology with costs, on a cluster.

    Parameters
    ----------
    operators
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
    ...     operators=(Source("log", rate=100), Operator("map", Exactly(0.004), parallelism=2)),
    ...     edges=(Edge("log", "map", "hash"),),
    ...     machines=(Machine(cores=2),),
    ... )
    >>> print(scenario)
    Scenario: 1 machine, 3 instances
      log: Source, 1 instance, Constant(rows_per_second=100.0)
      map: Operator, 2 instances, Exactly(seconds=0.004)
      log -> map: hash
    """

    operators: tuple[Vertex, ...]
    edges: tuple[Edge, ...] = ()
    machines: tuple[Machine, ...] = ()
    network: Network = INSTANT

    name: ClassVar[str] = "scenario"  # type: ignore[misc]

    def __post_init__(self) -> None:
        for name, kinds in (("operators", (Source, Operator)), ("edges", (Edge,)), ("machines", (Machine,))):
            object.__setattr__(self, name, _listed(name, getattr(self, name), kinds))
        ends = [(edge.sender, edge.receiver) for edge in self.edges]
        for edge in self.edges:
            if ends.count((edge.sender, edge.receiver)) > 1:
                raise OptionError(
                    f"edge {edge} is given twice: leave one out, or, for two copies of each tuple, put an operator on "
                    "the way of the second"
                )
        self.check_graph()
        self._check_order()
        for edge in self.edges:
            self._check_edge(edge)
        for vertex in self.operators:
            self._check_vertex(vertex)
        self._check_cycles()
        _ = self.placement  # which checks that all machines are there

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

    @cached_property
    def placement(self) -> Placement:
        """The machine of every instance; those that are not placed are dealt to the machines in turn."""
        given = [(one.name, number, at) for one in self.operators for number, at in enumerate(one.machines)]
        fixed = {Instance(name, number): at for name, number, at in given}
        return Placement.dealt(self, len(self.machines) or len(self.instances), fixed)

    def _check_order(self) -> None:
        place = {one.name: at for at, one in enumerate(self.operators)}
        for edge in self.edges:
            if not edge.feedback and place[edge.sender] >= place[edge.receiver]:
                raise OptionError(
                    f"edge {edge} goes backwards: list senders before their receivers, or, where it closes a cycle, "
                    "give it feedback=True"
                )

    def _check_edge(self, edge: Edge) -> None:
        receiver = self.by_name[edge.receiver]
        if edge.feedback and receiver.capacity:
            raise OptionError(
                f"edge {edge} closes a cycle, and the queue of {edge.receiver!r} has a bound: when it is full all "
                "would wait for each other; give it capacity=0"
            )
        self._check_costs(edge)

    def _check_costs(self, edge: Edge) -> None:
        found, receiver = edge.by_cost(), self.by_name[edge.receiver]
        if found and needs_costs(found) and not isinstance(receiver.service, Exactly | PerItem):
            raise OptionError(
                f"edge {edge}: {found.name} must know what a tuple costs before it is executed, which "
                f"{receiver.service!r} does not tell: give {edge.receiver!r} Exactly or PerItem"
            )

    def _check_cycles(self) -> None:
        """Refuse cycles in which tuples multiply: they would never end."""
        if not self.cyclic:
            return
        names = [vertex.name for vertex in self.operators]
        sent = np.zeros((len(names), len(names)))
        for edge in self.edges:
            sender, receiver = self.by_name[edge.sender], self.by_name[edge.receiver]
            copies = receiver.parallelism if edge.wiring is Route.BROADCAST else 1
            outputs = sender.outputs
            sent[names.index(edge.sender), names.index(edge.receiver)] += outputs * edge.share * copies
        gain = float(np.abs(np.linalg.eigvals(sent)).max())
        if gain >= 1 - 1e-9:
            raise OptionError(
                f"tuples do not get fewer on their way round a cycle (a factor of {gain:.3g} an edge) and would never "
                "come out: lower the share of its edges or the outputs of its operators"
            )

    def _check_vertex(self, vertex: Vertex) -> None:
        self._check_branches(vertex)
        if vertex.name not in self._ways_out():
            raise OptionError(
                f"all ways from {vertex.name!r} lead round, so tuples would leave the cluster nowhere: add an operator "
                "and an edge that leads on"
            )
        if not self.machines and vertex.machines:
            raise OptionError(f"{vertex.name!r} is placed on machines, and the scenario has none: list them")

    def _ways_out(self) -> set[str]:
        """Operators from which a way leads to one without edges, which is where tuples leave."""
        found = {vertex.name for vertex in self.operators} - {edge.sender for edge in self.edges}
        for _ in self.operators:
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
        total = len(self.instances)
        lines = [f"Scenario: {counted(len(self.machines) or total, 'machine')}, {counted(total, 'instance')}"]
        for vertex in self.operators:
            kind, of = ("Source", vertex.rate) if isinstance(vertex, Source) else ("Operator", vertex.service)
            lines.append(f"  {vertex.name}: {kind}, {counted(vertex.parallelism, 'instance')}, {of!r}")
        for edge in self.edges:
            grouping = edge.built_in or edge.by_cost() or edge.policy()
            share = f", a branch with {edge.share:g} of the tuples" if edge.is_branch else ""
            lines.append(f"  {edge}: {grouping}{share}{', back' if edge.feedback else ''}")
        return "\n".join(lines)


def _listed(name: str, given: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    listed = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(one, kinds) for one in listed):
        words = " or ".join(kind.__name__ for kind in kinds)
        several = kinds == (Machine,) and isinstance(given, int)
        hint = f": write machines=[Machine(cores=4)] * {given}" if several else ""
        raise OptionError(f"{name} of a scenario are a list of {words}, got {given!r}{hint}")
    return listed

"""Tells, once for a simulation, which groupings change nothing in it."""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.core import tell_no_effect
from steelyard.sim.dataflow import Edge
from steelyard.sim.scenario import Scenario


def tell_lone_receivers(scenario: Scenario) -> None:
    """Tell of policies and groupings by cost that have one instance to choose from, wherever they are used."""
    at: dict[str, list[Edge]] = {}
    for edge in scenario.edges:
        decider = edge.by_cost() or edge.policy()
        if decider is not None:
            at.setdefault(decider.name, []).append(edge)
    for edges in at.values():
        if all(scenario.operator(edge.receiver).parallelism == 1 for edge in edges):
            receivers = " and ".join(sorted({repr(edge.receiver) for edge in edges}))
            verb, them = ("has", "it") if len({edge.receiver for edge in edges}) == 1 else ("have", "them")
            tell_no_effect(_named(edges[0]), f"{receivers} {verb} one instance", f"give {them} more instances")


def tell_like_hash(edges: Iterable[Edge], tuples: str = "all tuples") -> None:
    """Tell of policies that sent every tuple where its hash would have."""
    for edge in edges:
        why = f"{tuples} went where 'hash' sends them, as they do while no key is frequent enough to be split"
        tell_no_effect(_named(edge), why, "try more skewed keys, or more instances")


def _named(edge: Edge) -> str:
    decider = edge.by_cost() or edge.policy()
    assert decider is not None
    return f"grouping {decider.name!r} of edge {edge}"

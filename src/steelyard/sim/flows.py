"""From a scenario to flows: mean service times, and which share of a stream each instance gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.dataflow import Route
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.core.weights import Weights
from steelyard.grouping.protocol import learns, needs_costs
from steelyard.kernels import fluid
from steelyard.kernels.fluid import NONE, Flow
from steelyard.partition import tuple_policy
from steelyard.sim.dataflow import Edge, Source
from steelyard.sim.laws import Growing, PerItem
from steelyard.sim.layout import Layout
from steelyard.sim.logs import Log
from steelyard.sim.scenario import Vertex
from steelyard.sim.weighing import held_weights

SAMPLED_ROWS = 1 << 16
"""Rows of a source by which shares and mean costs are found, where they depend on keys."""


PANES = 30
"""Of the time that a tuple with a ttl is kept: it is forgotten to within one of them."""

RoutedEdge: TypeAlias = tuple[Edge, tuple[Ints, Ints] | None]
"""An edge, and where it sends the items of a sample."""


def flow_of(layout: Layout) -> Flow:
    """The scenario's flow, with nothing in its queues."""
    scenario = layout.scenario
    if scenario.cyclic:
        raise OptionError("flows know no cycles: run the scenario tuple by tuple, or leave edges with feedback out")
    order = [scenario.edges[number] for number in layout.edges]
    names = [vertex.name for vertex in scenario.operators]
    operators = np.zeros(len(names), fluid.FLOW_OPERATOR)
    edges = np.zeros(len(order), fluid.FLOW_EDGE)
    routed = [_routed(layout, edge) for edge in order]
    shares: list[Floats] = [np.zeros(0)]
    for row, edge, found in zip(edges, order, routed, strict=True):
        row["sender"], row["receiver"] = names.index(edge.sender), names.index(edge.receiver)
        row["first_share"], row["share"] = sum(map(len, shares)), edge.share
        shares.append(edge.share * _shares(layout, edge, found))
        operators["sends"][row["sender"]] += shares[-1].sum()
    senders = [edge.sender for edge in order]
    for row, vertex in zip(operators, scenario.operators, strict=True):
        row["first"], row["count"] = layout.first_instance[vertex.name], vertex.parallelism
        row["edges"] = senders.count(vertex.name)
        row["first_edge"] = senders.index(vertex.name) if vertex.name in senders else 0
        row["outputs"] = vertex.outputs
        row["threads"] = vertex.parallelism * vertex.threads
        row["panes"], row["pane"], row["gives"] = _panes(vertex)
        row["left"], row["new_keys"] = row["pane"], (vertex.window.new_keys if vertex.window else 0.0) or 1.0
    instances = _instances(layout, list(zip(order, routed, strict=True)))
    machines = np.zeros(len(scenario.machines) or len(instances), fluid.FLOW_MACHINE)
    machines["cores"] = [machine.cores for machine in scenario.machines] if scenario.machines else instances["threads"]
    panes = np.zeros((len(instances), max(int(operators["panes"].max()), 1)))
    return Flow(operators, instances, edges, np.concatenate(shares), machines, panes)


def weigh(flow: Flow, layout: Layout, weights: Weights) -> None:
    """Have instances get what comes over edges that deal tuples out in turn in proportion to these."""
    held = held_weights(layout.scenario, weights)
    for row, number in zip(flow.edges, layout.edges, strict=True):
        edge = layout.scenario.edges[number]
        if (given := held.get((edge.sender, edge.receiver))) is not None:
            first = row["first_share"]
            flow.shares[first : first + len(given)] = edge.share * np.array(given) / sum(given)


def carried(flow: Flow, before: Flow) -> None:
    """What waits and what is kept in a flow goes over to one with other numbers of instances, alike to all of them.

    What waits in the logs of sources does too. Windows end when they would have.
    """
    for operator, old in zip(flow.operators, before.operators, strict=True):
        own, theirs = (slice(one["first"], one["first"] + one["count"]) for one in (operator, old))
        for what in ("queue", "kept", "results"):
            flow.instances[what][own] = before.instances[what][theirs].sum() / operator["count"]
        flow.panes[own] = before.panes[theirs].sum(axis=0) / operator["count"]
        operator["left"], operator["newest"] = old["left"], old["newest"]


def state_bytes(layout: Layout, flow: Flow) -> Floats:
    """float64[instances]: what each keeps: of a window, something for each key, of a join for each tuple."""
    found: Floats = np.zeros(len(flow.instances))
    for vertex, operator in zip(layout.scenario.operators, flow.operators, strict=True):
        own = flow.instances[layout.instances_of(vertex.name)]
        if vertex.window:
            new, keys = own["kept"] * operator["new_keys"], own["keys"]
            bounded = np.where(np.isfinite(keys), keys, 1.0)
            different = np.where(np.isfinite(keys), bounded * -np.expm1(-new / bounded), new) + own["results"]
            found[layout.instances_of(vertex.name)] += vertex.window.bytes_per_key * different
        if isinstance(vertex.service, Growing):
            found[layout.instances_of(vertex.name)] += vertex.service.bytes_per_kept * own["kept"]
    return found


def _panes(vertex: Vertex) -> tuple[int, float, bool]:
    """How many panes are kept, how long each is in seconds, and whether results come out when one ends."""
    if vertex.window:
        return vertex.window.panes, vertex.window.slide or vertex.window.seconds, True
    law = vertex.service
    if not isinstance(law, Growing):
        return 0, np.inf, False
    return (PANES, law.ttl / PANES, False) if law.ttl else (1, law.window or np.inf, False)


def like_hash(layout: Layout) -> list[Edge]:
    """Edges to several instances whose policies send every row of a sample where its hash would."""
    found = []
    for edge in layout.scenario.edges:
        if edge.policy() is not None and layout.scenario.operator(edge.receiver).parallelism > 1:
            chosen, by_hash = _routed(layout, edge), _routed(layout, replace(edge, grouping="hash"))
            if chosen and by_hash and np.array_equal(chosen[1], by_hash[1]):
                found.append(edge)
    return found


def sample_of(source: Source) -> tuple[Ints, Ints]:
    """Items and keys of the source's first rows."""
    rows = max(SAMPLED_ROWS // source.parallelism, 1)
    chunk = Log(source, seed=0, chunk=rows).first_rows()
    return chunk.items.ravel(), chunk.keys.ravel()


def _instances(layout: Layout, routed: Sequence[RoutedEdge]) -> fluid.Rows:
    scenario, places = layout.scenario, layout.scenario.placement
    rows = np.zeros(len(scenario.instances), fluid.FLUID)
    partitions = 0
    for number, vertex in enumerate(scenario.operators):
        own = rows[layout.instances_of(vertex.name)]
        own["operator"] = number
        own["machine"] = places.of(vertex.name)
        hosts = [scenario.machines[place] for place in places.of(vertex.name)] if scenario.machines else []
        speed = np.array([machine.speed for machine in hosts] or 1.0)
        own["threads"] = vertex.threads
        own["capacity"] = vertex.capacity or np.inf
        slowdown = np.array(vertex.slowdown or 1.0)
        own["service"] = _mean_costs(layout, vertex.name, routed) * slowdown / speed
        own["growth"] = (vertex.service.per_kept if isinstance(vertex.service, Growing) else 0.0) * slowdown / speed
        own["result_seconds"] = (vertex.window.per_result if vertex.window else 0.0) * slowdown / speed
        own["cpu"], own["keys"] = vertex.cpu, np.inf
        if vertex.window and not vertex.window.new_keys:
            own["keys"] = _keys(layout, vertex.name, routed)
        own["source"] = NONE
        if isinstance(vertex, Source):
            own["source"] = partitions + np.arange(vertex.parallelism)
            partitions += vertex.parallelism
    return rows


def _mean_costs(layout: Layout, name: str, routed: Sequence[RoutedEdge]) -> Floats:
    """float64[instances]: mean service time of the tuples that each instance gets."""
    vertex = layout.scenario.operator(name)
    law, count = vertex.service, vertex.parallelism
    if not isinstance(law, PerItem):
        return np.full(count, law.mean)
    for edge, found in routed:
        if edge.receiver == name and found is not None:
            items, block = found
            return np.array([law.mean_over(items[block == number]) for number in range(count)])
    return np.full(count, law.mean_over(sample_of(_root(layout, name))[0]))


def _keys(layout: Layout, name: str, routed: Sequence[RoutedEdge]) -> Floats:
    """float64[instances]: different keys that come to each; without end where every row has another one."""
    count, source = layout.scenario.operator(name).parallelism, _root(layout, name)
    if source.keys is None:
        return np.full(count, np.inf)
    _, keys = sample_of(source)
    for edge, found in routed:
        if edge.receiver == name and found is not None:
            return np.array([max(len(np.unique(keys[found[1] == number])), 1) for number in range(count)], np.float64)
    return np.full(count, float(len(np.unique(keys))))


def _routed(layout: Layout, edge: Edge) -> tuple[Ints, Ints] | None:
    """Items of a sample and their instances, where the grouping looks at keys; otherwise None."""
    if edge.by_cost() or (edge.built_in and edge.wiring is not Route.HASH):
        return None
    receivers = layout.scenario.operator(edge.receiver).parallelism
    items, keys = sample_of(_root(layout, edge.sender))
    router = tuple_policy("hash" if edge.built_in else edge.grouping).router(receivers, 0)  # type: ignore[arg-type]
    return items, router.route(keys, np.arange(len(keys))).block.astype(np.int64)


def _shares(layout: Layout, edge: Edge, routed: tuple[Ints, Ints] | None) -> Floats:
    """float64[receiver's instances]: the share of a tuple sent that each instance gets."""
    senders = layout.scenario.operator(edge.sender).parallelism
    receivers = layout.scenario.operator(edge.receiver).parallelism
    if routed is not None:
        return np.bincount(routed[1], minlength=receivers) / len(routed[1])
    found = edge.by_cost()
    if found and (learns(found) or needs_costs(found)):
        return _by_speed(layout, edge)
    if edge.wiring is Route.BROADCAST:
        return np.ones(receivers)
    if edge.wiring is Route.GLOBAL:
        return np.bincount([0], minlength=receivers).astype(np.float64)
    if edge.wiring is Route.FORWARD:
        return np.bincount(np.arange(senders) % receivers, minlength=receivers) / senders
    return np.full(receivers, 1 / receivers)


def _by_speed(layout: Layout, edge: Edge) -> Floats:
    """Shares with which all instances work as long as each other, which is what groupings by cost are after."""
    scenario, receiver = layout.scenario, layout.scenario.operator(edge.receiver)
    hosts = [scenario.machines[place] for place in scenario.placement.of(edge.receiver)] if scenario.machines else []
    speeds: Floats = np.array([machine.speed for machine in hosts] or [1.0] * receiver.parallelism)
    speeds /= np.array(receiver.slowdown or 1.0)
    speeds /= speeds.sum()
    return speeds


def _root(layout: Layout, name: str) -> Source:
    """A source whose rows come to this vertex."""
    while not isinstance(vertex := layout.scenario.operator(name), Source):
        name = next(edge.sender for edge in layout.scenario.edges if edge.receiver == name)
    return vertex

"""From a scenario to the arrays of the event loop."""

from __future__ import annotations

import numpy as np

from steelyard.core import OptionError
from steelyard.core.dataflow import Route
from steelyard.core.weights import Weights, dealt
from steelyard.grouping import RoundRobin, Shortest
from steelyard.kernels import cluster_state as state
from steelyard.kernels.cluster_state import NONE, Cluster, Rows
from steelyard.kernels.event_heap import event_heap
from steelyard.partition import Shuffle
from steelyard.sim.dataflow import Source
from steelyard.sim.grouped import number_schedulers
from steelyard.sim.laws import Exactly, Exponential, Growing, Law, PerItem, Samples
from steelyard.sim.layout import Layout
from steelyard.sim.scenario import Scenario, Vertex
from steelyard.sim.weighing import held_weights
from steelyard.workloads.draws import Draws

LOG_ROWS = 1 << 18
"""Rows of all logs that are made at once."""
LEAST_CHUNK, LARGEST_CHUNK = 256, 1 << 15
ROUTED_AHEAD = 4096
"""Routes of a sender that a policy decides at once, at most."""
FIRST_POOL, FIRST_TRACE, FIRST_KEYS = 1 << 12, 1 << 12, 1 << 10

GIGABYTE = 1e9

_LAWS: dict[type[Law], int] = {
    Exactly: state.EXACTLY,
    Exponential: state.EXPONENTIAL,
    PerItem: state.PER_ITEM,
    Samples: state.SAMPLES,
    Growing: state.GROWING,
}
_GROUPINGS = {
    Route.FORWARD.value: state.FORWARD,
    Route.GLOBAL.value: state.FORWARD,
    Route.HASH.value: state.HASH,
    Route.BROADCAST.value: state.BROADCAST,
    Shuffle.name: state.IN_TURN,
    RoundRobin.name: state.IN_TURN,
    Shortest.name: state.SHORTEST,
}


def build(layout: Layout, seed: int, trace: bool) -> Cluster:
    """An idle cluster at time 0, with every source about to read its first row."""
    scenario = layout.scenario
    operators, tables = _operators(layout)
    instances, servers = _instances(layout, seed)
    machines, links, running = _machines(scenario, instances, servers)
    edges, turns = _edges(layout)
    _count_channels(layout, edges, instances)
    number_schedulers(layout, edges)
    lettered = FIRST_POOL if (edges["grouping"] == state.BY_COST).any() else 0
    routed = ROUTED_AHEAD if (edges["grouping"] == state.POLICY).any() else 0
    sources = _sources(instances)
    chunk = log_chunk(len(sources))
    counters = np.zeros(state.COUNTERS, np.int64)
    counters[state.FULL_MACHINE] = NONE
    timed = np.flatnonzero(operators["closes"][instances["operator"]] > 0).astype(np.int32)
    first_timer = len(machines) + len(sources) + len(links)
    instances["timer"][timed] = first_timer + np.arange(len(timed))
    work = np.zeros(len(servers), np.int32)
    readers = instances["first_server"][sources["instance"]]
    servers["phase"][readers] = state.READY
    work[: len(readers)] = readers
    counters[state.WORK_COUNT] = len(readers)
    cluster = Cluster(
        operators,
        instances,
        servers,
        machines,
        links,
        edges,
        turns,
        sources,
        state.free_pool(FIRST_POOL),
        np.zeros(FIRST_TRACE if trace else 0, state.TRACE),
        tables,
        np.zeros((len(turns), routed), np.int32),
        np.zeros(0, np.int32),
        np.zeros((len(sources), chunk)),
        np.zeros((len(sources), chunk), np.int64),
        np.zeros((len(sources), chunk), np.int64),
        running,
        work,
        np.zeros((len(operators), state.BINS), np.int64),
        np.zeros((len(operators), 2)),
        counters,
        np.zeros(2),
        np.zeros(1),
        event_heap(first_timer + len(timed)),
        np.zeros((lettered, 5)),
        timed,
        state.no_keys(FIRST_KEYS if len(timed) else 1),
    )
    return dealing_out(cluster, layout, {})


def dealing_out(cluster: Cluster, layout: Layout, weights: Weights) -> Cluster:
    """The same cluster with these weights where tuples are dealt out in turn: a cycle of others than before begins."""
    held, parts, places = held_weights(layout.scenario, weights), [np.zeros(0, np.int32)], 0
    for row, number in zip(cluster.edges, layout.edges, strict=True):
        edge = layout.scenario.edges[number]
        if row["grouping"] == state.IN_TURN:
            order = dealt(held.get((edge.sender, edge.receiver), (1,) * int(row["count"]))).astype(np.int32)
            before = cluster.dealt[row["first_dealt"] : row["first_dealt"] + row["dealt"]]
            if not np.array_equal(order, before):
                turns = cluster.turns["next"][row["first_turn"] : row["first_turn"] + layout.ends_of(number)[0]]
                turns[:] = np.arange(len(turns)) % len(order)
            row["first_dealt"], row["dealt"], places = places, len(order), places + len(order)
            parts.append(order)
    return cluster._replace(dealt=np.concatenate(parts))


def log_chunk(sources: int) -> int:
    """Rows of a partition that are made at once, where there are so many partitions."""
    return min(max(LOG_ROWS // sources, LEAST_CHUNK), LARGEST_CHUNK)


def _require_known(vertex: Vertex) -> None:
    """Raise OptionError where only flows can run an operator."""
    unknown = {
        "a window that slides": vertex.window and vertex.window.slide,
        "new_keys of a window": vertex.window and vertex.window.new_keys,
        "ttl of Growing": isinstance(vertex.service, Growing) and vertex.service.ttl,
        "cpu below 1": vertex.cpu < 1,
    }
    for what in (name for name, given in unknown.items() if given):
        raise OptionError(f"{vertex.name!r} has {what}, which is not known tuple by tuple: run it as flows")


def _operators(layout: Layout) -> tuple[Rows, state.Floats]:
    vertices = layout.scenario.operators
    rows = np.zeros(len(vertices), state.OPERATOR)
    tables: list[state.Floats] = [np.zeros(0)]
    for row, vertex in zip(rows, vertices, strict=True):
        _require_known(vertex)
        row["law"] = _LAWS[type(vertex.service)]
        row["mean"] = vertex.service.mean
        row["outputs"] = vertex.outputs
        if isinstance(vertex.service, Growing):
            row["growth"], row["window"] = vertex.service.per_kept, vertex.service.window
            row["kept_bytes"] = vertex.service.bytes_per_kept
        if vertex.window:
            row["closes"], row["per_result"] = vertex.window.seconds, vertex.window.per_result
            row["key_bytes"] = vertex.window.bytes_per_key
        if isinstance(vertex.service, PerItem | Samples):
            row["table_first"] = sum(map(len, tables))
            row["table_size"] = len(vertex.service.seconds)
            tables.append(vertex.service.seconds)
    senders = [layout.scenario.edges[number].sender for number in layout.edges]
    for row, vertex in zip(rows, vertices, strict=True):
        row["edges"] = senders.count(vertex.name)
        row["first_edge"] = senders.index(vertex.name) if vertex.name in senders else 0
    return rows, np.concatenate(tables)


def _instances(layout: Layout, seed: int) -> tuple[Rows, Rows]:
    """Instances with nothing in their queues, and their servers, all free but those of sources."""
    scenario, places = layout.scenario, layout.scenario.placement
    rows = np.zeros(len(scenario.instances), state.INSTANCE)
    servers: list[int] = []
    for number, vertex in enumerate(scenario.operators):
        own = rows[layout.instances_of(vertex.name)]
        own["operator"] = number
        own["machine"] = places.of(vertex.name)
        own["servers"] = vertex.threads
        own["slowdown"] = vertex.slowdown or 1.0
        own["capacity"] = vertex.capacity or state.UNBOUNDED
        own["source"] = 0 if isinstance(vertex, Source) else NONE
        for i in range(vertex.parallelism):
            servers += [layout.first_instance[vertex.name] + i] * vertex.threads
    rows["source"] = np.where(rows["source"] == NONE, NONE, np.cumsum(rows["source"] != NONE) - 1)
    lists = ("free", "head", "tail", "first_blocked", "last_blocked", "aside", "last_aside")
    for field in (*lists, "timer", "opened", "last_opened", "closing", "last_closing"):
        rows[field] = NONE
    rows["first_server"] = np.cumsum(rows["servers"]) - rows["servers"]
    threads = np.zeros(len(servers), state.SERVER)
    threads["instance"] = servers
    threads["random"] = Draws(seed, np.arange(len(servers), dtype=np.uint64)).bits("servers")
    threads["next"] = threads["dest"] = threads["by"] = threads["results"] = NONE
    for row in rows[rows["source"] == NONE]:
        first, last = row["first_server"], row["first_server"] + row["servers"]
        threads["next"][first : last - 1] = np.arange(first + 1, last)
    rows["free"] = np.where(rows["source"] == NONE, rows["first_server"], NONE)
    return rows, threads


def _machines(scenario: Scenario, instances: Rows, servers: Rows) -> tuple[Rows, Rows, Rows]:
    """Machines, links between all pairs of them, and for each a heap with room for all of its servers."""
    count = len(scenario.machines) or len(instances)
    rows = np.zeros(count, state.MACHINE)
    given = scenario.machines
    rows["cores"] = [machine.cores for machine in given] if given else instances["servers"]
    rows["speed"] = [machine.speed for machine in given] if given else 1.0
    rows["memory"] = [machine.memory_gb * GIGABYTE for machine in given] if given else np.inf
    for field, rate in (
        ("seconds_a_byte", scenario.network.bytes_per_second),
        ("local_seconds_a_byte", scenario.network.local_bytes_per_second),
    ):
        rows[field] = 1 / rate if rate else 0.0
    rows["serialise"] = scenario.network.serialise
    hosted = np.bincount(instances["machine"], weights=instances["servers"], minlength=count).astype(np.int64)
    rows["first"] = np.cumsum(hosted) - hosted
    network = scenario.network
    delays = (network.latency, network.local_latency, network.bytes_per_second, network.local_bytes_per_second)
    instant = not any(delays)
    links = np.zeros(1 if instant else count * count, state.LINK)
    links["head"] = links["tail"] = NONE
    links["latency"] = network.latency
    links["latency"][:: count + 1] = network.local_latency
    return rows, links, np.zeros(len(servers), np.int32)


def _edges(layout: Layout) -> tuple[Rows, Rows]:
    scenario = layout.scenario
    rows = np.zeros(len(layout.edges), state.EDGE)
    turns = 0
    for row, number in zip(rows, layout.edges, strict=True):
        edge = scenario.edges[number]
        senders, receivers = layout.ends_of(number)
        row["first"] = layout.first_instance[edge.receiver]
        row["count"] = 1 if edge.wiring is Route.GLOBAL else receivers
        row["grouping"] = state.BY_COST if edge.by_cost() else _GROUPINGS.get(edge.built_in, state.POLICY)
        row["first_turn"] = turns
        row["first_from"] = layout.first_instance[edge.sender]
        row["bytes"] = edge.tuple_bytes
        turns += senders
    _set_branches(layout, rows)
    return rows, np.zeros(turns, state.TURN)


def _set_branches(layout: Layout, rows: Rows) -> None:
    """Give each branch of a sender its part of the numbers from 0 to 1, and every other edge all of them."""
    rows["low"], rows["high"] = 0.0, 1.0
    edges = [layout.scenario.edges[number] for number in layout.edges]
    for vertex in layout.scenario.operators:
        own = [row for row, edge in enumerate(edges) if edge.sender == vertex.name and edge.is_branch]
        ends = np.cumsum([edges[row].share for row in own])
        rows["high"][own[:-1]] = ends[:-1]
        rows["low"][own[1:]] = ends[:-1]


def _count_channels(layout: Layout, edges: Rows, instances: Rows) -> None:
    """Count for each instance the channels on which markers come; from those that get none themselves none come."""
    for row, number in zip(edges, layout.edges, strict=True):
        senders = np.arange(row["first_from"], row["first_from"] + layout.ends_of(number)[0])
        senders = senders[(instances["source"][senders] != NONE) | (instances["senders"][senders] > 0)]
        if row["grouping"] == state.FORWARD:
            np.add.at(instances["senders"], row["first"] + (senders - row["first_from"]) % row["count"], 1)
        else:
            instances["senders"][row["first"] : row["first"] + row["count"]] += len(senders)


def _sources(instances: Rows) -> Rows:
    of_sources = np.flatnonzero(instances["source"] != NONE)
    rows = np.zeros(len(of_sources), state.SOURCE)
    rows["instance"] = of_sources
    return rows

"""Policies of `steelyard.partition` at work in a simulation: each sending instance has a router of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from steelyard.core import Cooperative, Routed, Router, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.kernels.cluster_state import NONE, WORK_FIRST, Cluster
from steelyard.partition import Hash
from steelyard.sim.dataflow import Edge
from steelyard.sim.layout import Layout


@dataclass
class Round:
    """Partitioners of one edge that cooperate."""

    policy: Cooperative
    receivers: int
    senders: range
    every: float
    due: float


@dataclass
class Compared:
    """Decisions of a policy on one edge beside those of its keys' hashes."""

    edge: Edge
    by_hash: Router
    decided: bool = False
    differs: bool = False

    def add(self, keys: Ints, routed: Routed) -> None:
        """Take further decisions into account."""
        self.decided = True
        self.differs = self.differs or bool((routed.block != self.by_hash.route(keys, np.zeros_like(keys)).block).any())


class Routers:
    """The routers of all edges whose grouping is a policy object.

    A sender that has no route for a tuple asks for those of all tuples that it is sure to send next, in their
    order: a source for rows of its log, with the times at which they come; an operator for its queue, with the
    time of asking. An operator with several threads, windows, or another number of outputs than one, and whoever has
    branches, cannot know what comes next, and asks for one tuple at a time.
    """

    def __init__(self, layout: Layout, now: float = 0.0) -> None:
        self._receivers = {vertex.name: vertex.parallelism for vertex in layout.scenario.operators}
        self._routers: dict[int, Router] = {}
        self._compared: dict[int, Compared] = {}
        self._rounds: list[Round] = []
        turn = 0
        for number in layout.edges:
            edge = layout.scenario.edges[number]
            senders = range(turn, turn + layout.scenario.operator(edge.sender).parallelism)
            policy = edge.policy()
            if policy is not None:
                receivers = layout.scenario.operator(edge.receiver).parallelism
                compared = Compared(edge, Hash().router(receivers))
                for sender in senders:
                    self._routers[sender] = policy.router(receivers, sender - turn)
                    self._compared[sender] = compared
                if isinstance(policy, Cooperative):
                    every = edge.exchange_every
                    self._rounds.append(Round(policy, receivers, senders, every, now + every))
            turn = senders.stop

    def like_hash(self) -> list[Edge]:
        """Edges to several instances whose policies have sent every tuple where its hash would have."""
        edges = {id(one): one.edge for one in self._compared.values() if one.decided and not one.differs}
        return [edge for edge in edges.values() if self._receivers[edge.receiver] > 1]

    @property
    def next_exchange(self) -> float:
        """When partitioners that cooperate learn from each other the next time."""
        return min((one.due for one in self._rounds), default=inf)

    def exchange(self, now: float) -> None:
        """Let those learn from each other whose time it is."""
        for one in self._rounds:
            if one.due <= now:
                states = {turn - one.senders.start: self._routers[turn].state() for turn in one.senders}
                for sender, state in one.policy.synchronise(states, one.receivers).items():
                    self._routers[one.senders.start + sender].restore(state)
                one.due = now + one.every

    def decide(self, cluster: Cluster, turn: int) -> None:
        """Fill the routes of a sender that has none left, for tuples that come before the next exchange."""
        keys, seconds = coming_tuples(cluster, self.next_exchange)
        chosen = self._routers[turn].route(keys, (seconds * 1000.0).astype(np.int64))
        if not self._compared[turn].differs:
            self._compared[turn].add(keys, chosen)
        cluster.routes[turn, : len(keys)] = chosen.block
        cluster.turns[turn]["at"] = 0
        cluster.turns[turn]["filled"] = len(keys)

    def states(self) -> dict[int, State]:
        """What every router has learnt."""
        return {turn: router.state() for turn, router in self._routers.items()}

    def restore(self, states: Mapping[int, State]) -> None:
        """Go on as the routers of these states would."""
        for turn, state in states.items():
            self._routers[turn].restore(state)


def coming_tuples(cluster: Cluster, until: float = inf) -> tuple[Ints, Floats]:
    """Keys and times of the tuples that the server in turn sends next, the one that it holds first.

    Of a source those that come before `until`.
    """
    server = cluster.servers[cluster.work[cluster.counters[WORK_FIRST]]]
    instance = cluster.instances[server["instance"]]
    most = cluster.routes.shape[1]
    operator = cluster.operators[instance["operator"]]
    edges = slice(operator["first_edge"], operator["first_edge"] + operator["edges"])
    branches = (cluster.edges["high"][edges] - cluster.edges["low"][edges] < 1.0).any()
    certain = operator["outputs"] == 1.0 and operator["closes"] == 0.0 and not branches
    which = instance["source"]
    if which != NONE and certain:
        source = cluster.sources[which]
        last = min(source["end"], source["at"] + most - 1)
        coming_by = np.searchsorted(cluster.log_times[which, source["at"] : last], until)
        rows = slice(source["at"], source["at"] + coming_by)
        keys, times = cluster.log_keys[which, rows], cluster.log_times[which, rows]
        return np.concatenate([[server["key"]], keys]), np.concatenate([[server["born"]], times])
    coming = [server["key"]]
    if which == NONE and instance["servers"] == 1 and certain:
        record = instance["head"]
        # a tuple behind a marker is sent after others that come later
        while record != NONE and len(coming) < most and cluster.pool[record]["epoch"] == instance["epoch"]:
            coming.append(cluster.pool[record]["key"])
            record = cluster.pool[record]["next"]
    return np.array(coming, np.int64), np.full(len(coming), cluster.now[0])

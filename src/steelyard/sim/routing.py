"""Policies of `steelyard.partition` at work in a simulation: each sending instance has a router of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from steelyard.core import BatchObservation, Cooperative, Observing, Routed, Router, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.core.policies import require_blocks
from steelyard.kernels.cluster_state import NONE, WORK_FIRST, Cluster
from steelyard.partition import Hash
from steelyard.sim.dataflow import Edge
from steelyard.sim.layout import Layout


@dataclass
class Round:
    """Partitioners of one edge that learn once in a while: from each other, or from what their decisions cost."""

    policy: object
    receivers: range
    """Instances, and"""
    instances: range
    """those of the senders, whose routers are the"""
    senders: range
    every: float
    due: float
    number: int = 0
    """Of the next one."""


MOST_PARTS = 1_024
"""Decisions that are kept apart: an operator may decide tuple by tuple."""


class Sent:
    """What a router has decided since it last observed what that cost."""

    def __init__(self, receivers: int) -> None:
        self._receivers = receivers
        self.rows = np.zeros(receivers, np.int64)
        self._pairs: list[Ints] = []

    def more(self, keys: Ints, routed: Routed) -> None:
        """Further decisions."""
        self.rows += np.bincount(routed.block, minlength=self._receivers)
        self._pairs.append(np.stack([routed.block.astype(np.int64), keys]))
        if len(self._pairs) > MOST_PARTS:
            self._pairs = [self._unique()]

    def _unique(self) -> Ints:
        return np.unique(np.concatenate(self._pairs, axis=1), axis=1)

    def clusters(self) -> Ints:
        """int64[receivers]: different keys that each was sent."""
        return np.bincount(self._unique()[0], minlength=self._receivers)


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
        self._sent: dict[int, Sent] = {}
        self._before: dict[int, tuple[Ints, Floats, Floats]] = {}
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
                observing = [sender for sender in senders if isinstance(self._routers[sender], Observing)]
                self._sent |= {sender: Sent(receivers) for sender in observing}
                if isinstance(policy, Cooperative) or observing:
                    to, own = layout.instances_of(edge.receiver), layout.instances_of(edge.sender)
                    ends = range(to.start, to.stop), range(own.start, own.stop)
                    self._rounds.append(Round(policy, *ends, senders, edge.exchange_every, now + edge.exchange_every))
            turn = senders.stop

    def like_hash(self) -> list[Edge]:
        """Edges to several instances whose policies have sent every tuple where its hash would have."""
        edges = {id(one): one.edge for one in self._compared.values() if one.decided and not one.differs}
        return [edge for edge in edges.values() if self._receivers[edge.receiver] > 1]

    @property
    def next_exchange(self) -> float:
        """When partitioners learn from each other, or from what their decisions cost, the next time."""
        return min((one.due for one in self._rounds), default=inf)

    def exchange(self, cluster: Cluster) -> None:
        """Let those learn whose time it is."""
        now = float(cluster.now[0])
        for number, one in enumerate(self._rounds):
            if one.due <= now:
                if isinstance(one.policy, Cooperative):
                    states = {turn - one.senders.start: self._routers[turn].state() for turn in one.senders}
                    for sender, state in one.policy.synchronise(states, len(one.receivers)).items():
                        self._routers[one.senders.start + sender].restore(state)
                self._show(cluster, number, one)
                one.due, one.number = now + one.every, one.number + 1

    def _show(self, cluster: Cluster, number: int, one: Round) -> None:
        """Show routers that observe what the rows cost that they have decided since the last time.

        A row takes what all rows took that its instance worked off meanwhile, in the mean.
        """
        if not any(sender in self._sent for sender in one.senders):
            return
        receivers = cluster.instances[one.receivers.start : one.receivers.stop]
        done, busy = receivers["done"].copy(), receivers["busy"].copy()
        blocked = cluster.instances["blocked"][one.instances.start : one.instances.stop].copy()
        nothing = np.zeros_like(done), np.zeros_like(busy), np.zeros_like(blocked)
        before_done, before_busy, before_blocked = self._before.get(number, nothing)
        self._before[number] = done, busy, blocked
        rows, seconds, held = done - before_done, busy - before_busy, blocked - before_blocked
        each = np.divide(seconds, rows, out=np.zeros(len(rows)), where=rows > 0)
        mean = seconds.sum() / rows.sum() if rows.sum() else 0.0
        for sender, waited in zip(one.senders, held.tolist(), strict=True):
            router, sent = self._routers[sender], self._sent.get(sender)
            if isinstance(router, Observing) and sent is not None and sent.rows.any() and rows.sum():
                took = sent.rows * np.where(rows > 0, each, mean)
                beside = max(0.0, min(waited, one.every) - float(took.max()))
                found = sent.rows.tolist(), sent.clusters().tolist(), took.tolist(), beside
                seen = BatchObservation.of_edge(one.number, *found, len(one.senders))
                router.observe(seen.at(float(cluster.now[0])))
                self._sent[sender] = Sent(len(one.receivers))

    def decide(self, cluster: Cluster, turn: int) -> None:
        """Fill the routes of a sender that has none left, for tuples that come before the next exchange."""
        keys, seconds = coming_tuples(cluster, self.next_exchange)
        chosen = self._routers[turn].route(keys, (seconds * 1000.0).astype(np.int64))
        edge = self._compared[turn].edge
        called = f"grouping of edge {edge.sender} to {edge.receiver}"
        require_blocks(called, chosen.block, len(keys), self._receivers[edge.receiver])
        if not self._compared[turn].differs:
            self._compared[turn].add(keys, chosen)
        if turn in self._sent:
            self._sent[turn].more(keys, chosen)
        cluster.routes[turn, : len(keys)] = chosen.block
        cluster.turns[turn]["at"] = 0
        cluster.turns[turn]["filled"] = len(keys)

    def states(self) -> dict[int, State]:
        """What every router has learnt."""
        return {turn: router.state() for turn, router in self._routers.items()}

    def restore(self, states: Mapping[int, State]) -> None:
        """Go on as the routers of these states would; what was decided since then is shown to none of them."""
        for turn, state in states.items():
            self._routers[turn].restore(state)
            if turn in self._sent:
                self._sent[turn] = Sent(self._routers[turn].blocks)


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

"""Groupings by cost in a simulated cluster whose loops are not compiled: any that follow the protocol.

The event loop comes back for each choice, report and letter, and they are made here, by the objects that other engines
use too. Where a grouping of a scenario is not compiled, all of them go this way: what they do is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from steelyard.core import State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.core.policies import require_blocks
from steelyard.grouping.protocol import (
    Grouping,
    Instance,
    Matrices,
    Report,
    Requests,
    Scheduler,
    needs_costs,
    needs_queues,
)
from steelyard.kernels import cluster_state as state
from steelyard.kernels.cluster_loop import run_until
from steelyard.kernels.cluster_service import leave_machine, travel
from steelyard.kernels.cluster_state import NONE, Cluster, Rows
from steelyard.kernels.osg_state import NOT_MARKED

MATRICES, REQUESTS, REPLIES, BYTES = range(4)
"""Places in what an edge has counted."""
REQUEST_BYTES = 16


@dataclass(frozen=True)
class PlainState:
    """What everybody knows, and letters under way."""

    schedulers: tuple[State, ...]
    instances: tuple[tuple[State, ...], ...]
    mail: dict[int, Report]


class _Grouped(NamedTuple):
    """One edge."""

    row: Rows
    policy: Grouping
    schedulers: int
    instances: list[Instance]


class PlainGroupings:
    """Schedulers and instances of all edges whose grouping goes by cost.

    Parameters
    ----------
    edges
        Of each its row in the cluster, its grouping, and how many instances send and receive.
    """

    def __init__(self, edges: Sequence[tuple[Rows, Grouping, tuple[int, int]]]) -> None:
        self._edges: list[_Grouped] = []
        self._schedulers: list[Scheduler] = []
        self._edge_of: list[int] = []
        for number, (row, policy, (senders, receivers)) in enumerate(edges):
            self._schedulers += [policy.scheduler(receivers, sender, senders) for sender in range(senders)]
            self._edge_of += [number] * senders
            instances = [policy.instance(receivers, one, senders) for one in range(receivers)]
            self._edges.append(_Grouped(row, policy, senders, instances))
        self._mail: dict[int, Report] = {}
        self._outgoing: list[tuple[int, Report]] = []
        self.traffic = [[0] * 4 for _ in edges]
        """By edge: matrices, requests, replies and bytes. Epochs are a matter of the schedulers alone."""

    def run(self, cluster: Cluster, until: float) -> int:
        """As `run_until`, which comes back for what is done here."""
        while True:
            outcome = int(run_until(cluster, until))
            if outcome == state.NEEDS_CHOICE:
                self._choose(cluster, _in_turn(cluster))
            elif outcome == state.NEEDS_REPORT:
                if not self._report(cluster, _in_turn(cluster)):
                    return state.NEEDS_ROOM
            elif outcome == state.LETTER_CAME:
                self._deliver(cluster, int(cluster.counters[state.NEEDED]))
            else:
                return outcome

    def _choose(self, cluster: Cluster, server: Rows) -> None:
        """Which of the edge's instances gets the server's tuple, and what the tuple asks of it."""
        operator = cluster.operators[cluster.instances[server["instance"]]["operator"]]
        row = cluster.edges[operator["first_edge"] + server["edge"]]
        by = int(row["first_scheduler"] + server["instance"] - row["first_from"])
        edge = self._edges[self._edge_of[by]]
        costs = _costs(cluster, server, row) if needs_costs(edge.policy) else None
        items, now = np.array([server["item"]], np.int64), np.array([cluster.now[0]])
        told = {"queues": _queues(cluster, row)} if needs_queues(edge.policy) else {}
        chosen = self._schedulers[by].choose(items, costs, now, **told)
        require_blocks(f"grouping {edge.policy.name!r}", chosen.to, 1, int(row["count"]))
        server["dest"], server["ask"], server["ask_load"] = chosen.to[0], NOT_MARKED, 0.0
        if len(chosen.requests.position):
            server["ask"], server["ask_load"] = chosen.requests.epoch[0], chosen.requests.load[0]
            self._count(by, REQUESTS, REQUEST_BYTES)

    def _report(self, cluster: Cluster, server: Rows) -> bool:
        """The instance learns what the server's tuple took, and writes; False where there is no room for letters."""
        by = int(server["by"])
        edge = self._edges[self._edge_of[by]]
        first = int(edge.row["first_scheduler"])
        if not server["stable"]:  # which says here that it has learnt
            server["stable"] = 1
            asked = Requests.none()
            if server["request"] != NOT_MARKED:
                asked = Requests(np.zeros(1, np.int64), np.array([server["request"]]), np.array([server["load"]]))
            now = cluster.now[0]
            took, items = np.array([now - server["since"]]), np.array([server["item"]], np.int64)
            instance = edge.instances[int(server["instance"] - edge.row["first"])]
            for report in instance.executed(items, took, np.array([now]), asked, by - first):
                every = range(first, first + edge.schedulers)
                to = every if isinstance(report, Matrices) else [first + report.scheduler]
                self._outgoing += [(scheduler, report) for scheduler in to]
        while self._outgoing:
            if cluster.counters[state.FREE_RECORD] == NONE:
                return False
            self._post(cluster, server, *self._outgoing.pop(0))
        server["by"], server["stable"] = NONE, 0
        return True

    def _post(self, cluster: Cluster, server: Rows, by: int, report: Report) -> None:
        """Send a letter over the lines of the instance's machine to that of a scheduler."""
        row = self._edges[self._edge_of[by]].row
        record = int(cluster.counters[state.FREE_RECORD])
        letter = cluster.pool[record]
        cluster.counters[state.FREE_RECORD] = letter["next"]
        letter["dest"], letter["remote"], letter["by"] = server["instance"], state.LETTER, by
        self._mail[record] = report
        source = int(cluster.instances[server["instance"]]["machine"])
        target = int(cluster.instances[row["first_from"] + by - row["first_scheduler"]]["machine"])
        left = float(leave_machine(cluster, source, target, float(report.size)))
        if travel(cluster, record, left, source, target):
            self._deliver(cluster, record)

    def _deliver(self, cluster: Cluster, record: int) -> None:
        """A letter has come to its scheduler."""
        letter, report = cluster.pool[record], self._mail.pop(record)
        by = int(letter["by"])
        self._schedulers[by].feedback([report])
        self._count(by, MATRICES if isinstance(report, Matrices) else REPLIES, report.size)
        letter["next"] = cluster.counters[state.FREE_RECORD]
        cluster.counters[state.FREE_RECORD] = record

    def _count(self, by: int, what: int, size: int) -> None:
        counted = self.traffic[self._edge_of[by]]
        counted[what] += 1
        counted[BYTES] += size

    def state(self) -> PlainState:
        """What everybody knows, and letters under way."""
        instances = tuple(tuple(one.state() for one in edge.instances) for edge in self._edges)
        return PlainState(tuple(one.state() for one in self._schedulers), instances, dict(self._mail))

    def restore(self, saved: PlainState) -> None:
        """Go on from there; what was counted stays."""
        for scheduler, known in zip(self._schedulers, saved.schedulers, strict=True):
            scheduler.restore(known)
        for edge, states in zip(self._edges, saved.instances, strict=True):
            for instance, known in zip(edge.instances, states, strict=True):
                instance.restore(known)
        self._mail, self._outgoing = dict(saved.mail), []


def _in_turn(cluster: Cluster) -> Rows:
    return cluster.servers[cluster.work[cluster.counters[state.WORK_FIRST]]]


def _queues(cluster: Cluster, row: Rows) -> Ints:
    """int64[1, instances]: tuples that wait, travel to an instance or are served."""
    to = cluster.instances[row["first"] : row["first"] + row["count"]]
    return np.asarray(to["fill"] + to["serving"], np.int64)[None]


def _costs(cluster: Cluster, server: Rows, row: Rows) -> Floats:
    """float64[1, instances]: what the server's tuple takes on each, if it has a core for itself."""
    to = cluster.instances[row["first"] : row["first"] + row["count"]]
    operator = cluster.operators[to["operator"][0]]
    seconds = operator["mean"]
    if operator["law"] != state.EXACTLY:
        seconds = cluster.tables[operator["table_first"] + server["item"] % operator["table_size"]]
    return np.asarray(seconds * to["slowdown"] / cluster.machines["speed"][to["machine"]])[None]

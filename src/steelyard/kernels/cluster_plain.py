"""The plain twin of the event loop: a small cluster of lists, in which work is counted down and nothing is clever."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf, log
from typing import Any, NamedTuple

from steelyard.kernels.cluster_state import (
    BROADCAST,
    EXACTLY,
    EXPONENTIAL,
    FORWARD,
    GROWING,
    HASH,
    IN_TURN,
    NONE,
    PER_ITEM,
    RANDOM,
    Cluster,
)
from steelyard.kernels.mixing import GOLDEN

_WORD = (1 << 64) - 1


class PlainTuple(NamedTuple):
    """What travels."""

    item: int
    key: int
    born: float
    remote: bool = False


@dataclass
class Output:
    """What a server still has to send."""

    edge: int
    dest: int = NONE
    granted: bool = False
    """Whether a place in the receiver's queue is kept for it."""


class Left(NamedTuple):
    """A tuple that left the cluster."""

    instance: int
    item: int
    born: float
    done: float


class PlainCluster:
    """The cluster that was built, before its first event, run by hand.

    Parameters
    ----------
    cluster
        As it was built; it is only read. Its groupings must be other than policies.
    logs
        For each source its rows: time, item, key.
    """

    def __init__(self, cluster: Cluster, logs: list[list[tuple[float, int, int]]]) -> None:
        self.c = cluster
        self.logs = [deque(rows) for rows in logs]
        self.now = 0.0
        self.left: list[Left] = []
        self.queues: list[deque[PlainTuple]] = [deque() for _ in cluster.instances]
        self.promised = [0] * len(cluster.instances)
        self.blocked: list[deque[int]] = [deque() for _ in cluster.instances]
        self.free = [
            [] if row["source"] != NONE else list(range(row["first_server"], row["first_server"] + row["servers"]))
            for row in cluster.instances
        ]
        self.holds: dict[int, PlainTuple] = {}
        self.outbox: dict[int, list[Output]] = {}
        self.running: list[dict[int, float]] = [{} for _ in cluster.machines]
        self.flying: list[tuple[float, int, int, PlainTuple]] = []
        self.kept: list[list[int]] = [[] for _ in cluster.instances]
        self.turns = [int(row["next"]) for row in cluster.turns]
        self.line_free = [0.0] * len(cluster.machines)
        self.debt = [0.0] * len(cluster.servers)
        self.random = [int(row["random"]) for row in cluster.servers]
        self.ready = deque(int(cluster.instances[row["instance"]]["first_server"]) for row in cluster.sources)

    def run_until(self, until: float) -> list[Left]:
        """Go on to the moment `until`; all tuples that have left."""
        self._settle()
        while (event := self._next())[0] <= until:
            time, kind, which = event
            for machine in range(len(self.running)):
                rate = self._rate(machine)
                for server in self.running[machine]:
                    self.running[machine][server] -= rate * (time - self.now)
            self.now = time
            if kind == 0:
                server = min(self.running[which], key=lambda one: (self.running[which][one], one))
                del self.running[which][server]
                self._put_out(server)
                self.ready.append(server)
            elif kind == 1:
                self.ready.append(int(self.c.instances[self.c.sources[which]["instance"]]["first_server"]))
            else:
                _, _, dest, arrived = self.flying.pop(which)
                self._arrive(dest, arrived)
            self._settle()
        return self.left

    def _next(self) -> tuple[float, int, int]:
        """The next event: when, whether a service ends, a row comes or a tuple arrives, and where."""
        events = [(inf, 0, 0)]
        for machine, busy in enumerate(self.running):
            if busy:
                events.append((self.now + max(min(busy.values()), 0.0) / self._rate(machine), 0, machine))
        for number, rows in enumerate(self.logs):
            server = self.c.instances[self.c.sources[number]["instance"]]["first_server"]
            if rows and rows[0][0] > self.now and server not in self.holds:
                events.append((rows[0][0], 1, number))
        if self.flying:
            first = min(range(len(self.flying)), key=lambda spot: self.flying[spot][:2])
            events.append((self.flying[first][0], 2, first))
        return min(events)

    def _rate(self, machine: int) -> float:
        row = self.c.machines[machine]
        return float(row["speed"] * min(1.0, row["cores"] / max(len(self.running[machine]), 1)))

    def _settle(self) -> None:
        while self.ready:
            server = self.ready.popleft()
            while server not in self.outbox or self._send(server):
                self.outbox.pop(server, None)
                self.holds.pop(server, None)
                taken = self._take(server)
                if taken is None or not self._begin(server, taken):
                    break

    def _take(self, server: int) -> PlainTuple | None:
        number = int(self.c.servers[server]["instance"])
        source = self.c.instances[number]["source"]
        if source != NONE:
            rows = self.logs[source]
            if not rows or rows[0][0] > self.now:
                return None
            time, item, key = rows.popleft()
            return PlainTuple(item, key, time)
        if not self.queues[number]:
            self.free[number].insert(0, server)
            return None
        taken = self.queues[number].popleft()
        if self.blocked[number]:
            self.promised[number] += 1
            waiting = self.blocked[number].popleft()
            self.outbox[waiting][0].granted = True
            self.ready.append(waiting)
        return taken

    def _begin(self, server: int, taken: PlainTuple) -> bool:
        """Start a service; True where it is over at once."""
        self.holds[server] = taken
        instance = self.c.instances[self.c.servers[server]["instance"]]
        machine = self.c.machines[instance["machine"]]
        demand = self._service_time(server, self.c.operators[instance["operator"]], taken) * instance["slowdown"]
        demand += self.debt[server] + taken.remote * machine["serialise"]
        self.debt[server] = 0.0
        if demand <= 0:
            self._put_out(server)
            return True
        self.running[instance["machine"]][server] = float(demand)
        return False

    def _service_time(self, server: int, operator: Any, taken: PlainTuple) -> float:
        if operator["law"] == EXACTLY:
            return float(operator["mean"])
        if operator["law"] == EXPONENTIAL:
            return -float(operator["mean"]) * log(1.0 - self._uniform(server))
        if operator["law"] == GROWING:
            return self._growing_time(int(self.c.servers[server]["instance"]), operator)
        size = int(operator["table_size"])
        spot = taken.item % size if operator["law"] == PER_ITEM else int(self._uniform(server) * size)
        return float(self.c.tables[operator["table_first"] + spot])

    def _growing_time(self, instance: int, operator: Any) -> float:
        window = int(self.now // operator["window"]) if operator["window"] else 0
        kept = self.kept[instance] = [one for one in self.kept[instance] if one == window]
        kept.append(window)
        return float(operator["mean"] + operator["growth"] * (len(kept) - 1))

    def _uniform(self, server: int) -> float:
        self.random[server] = x = (self.random[server] + GOLDEN) & _WORD
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
        return ((x ^ (x >> 31)) >> 11) / (1 << 53)

    def _put_out(self, server: int) -> None:
        """List what comes out of the tuple."""
        number = int(self.c.servers[server]["instance"])
        operator = self.c.operators[self.c.instances[number]["operator"]]
        whole = int(operator["outputs"])
        extra = operator["outputs"] > whole and self._uniform(server) < operator["outputs"] - whole
        edges = range(operator["first_edge"], operator["first_edge"] + operator["edges"])
        self.outbox[server] = []
        for _ in range(whole + extra):
            for edge in edges:
                row = self.c.edges[edge]
                everybody = range(row["first"], row["first"] + row["count"])
                chosen = everybody if row["grouping"] == BROADCAST else [NONE]
                self.outbox[server] += [Output(edge, dest) for dest in chosen]
        if not edges:
            held = self.holds[server]
            self.left.append(Left(number, held.item, held.born, self.now))

    def _choose(self, server: int, edge: int) -> int:
        row, instance = self.c.edges[edge], int(self.c.servers[server]["instance"])
        first, count, sender = int(row["first"]), int(row["count"]), instance - int(row["first_from"])
        if row["grouping"] == HASH:
            return first + self.holds[server].key % count
        if row["grouping"] == FORWARD:
            return first + sender % count
        if row["grouping"] == RANDOM:
            return first + int(self._uniform(server) * count)
        if row["grouping"] == IN_TURN:
            turn = int(row["first_turn"]) + sender
            chosen = self.turns[turn]
            self.turns[turn] = (chosen + 1) % count
            return first + chosen
        return min(range(first, first + count), key=lambda dest: (self._load(dest), dest))

    def _load(self, instance: int) -> int:
        """Tuples that wait, travel to it or are served."""
        row = self.c.instances[instance]
        servers = range(row["first_server"], row["first_server"] + row["servers"])
        return self._fill(instance) + sum(server in self.holds for server in servers)

    def _fill(self, instance: int) -> int:
        flying = sum(dest == instance for _, _, dest, _ in self.flying)
        return len(self.queues[instance]) + flying + self.promised[instance]

    def _send(self, server: int) -> bool:
        """Send what the server put out; False where a queue is full, and the server stays in line."""
        while self.outbox[server]:
            output = self.outbox[server][0]
            if output.dest == NONE:
                output.dest = self._choose(server, output.edge)
            if output.granted:
                self.promised[output.dest] -= 1
            elif self._fill(output.dest) >= self.c.instances[output.dest]["capacity"]:
                self.blocked[output.dest].append(server)
                return False
            self.outbox[server].pop(0)
            self._travel(server, output.dest, float(self.c.edges[output.edge]["bytes"]))
        return True

    def _travel(self, server: int, dest: int, size: float) -> None:
        source = int(self.c.instances[self.c.servers[server]["instance"]]["machine"])
        target = int(self.c.instances[dest]["machine"])
        due = self.now
        if source != target:
            machine = self.c.machines[source]
            self.debt[server] += machine["serialise"]
            due = self.line_free[source] = max(due, self.line_free[source]) + size * machine["seconds_a_byte"]
        link = source * len(self.c.machines) + target if len(self.c.links) > 1 else 0
        due += float(self.c.links[link]["latency"])
        moved = self.holds[server]._replace(remote=source != target)
        if due <= self.now:
            self._arrive(dest, moved)
        else:
            self.flying.append((due, link, dest, moved))

    def _arrive(self, dest: int, arrived: PlainTuple) -> None:
        self.queues[dest].append(arrived)
        if self.free[dest]:
            self.ready.append(self.free[dest].pop(0))

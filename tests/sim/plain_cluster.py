"""The plain twin of the event loop: a small cluster of lists, in which work is counted down and nothing is clever."""

from __future__ import annotations

from collections import deque
from math import inf, log
from typing import Any

from steelyard.kernels.cluster_groupings import Groupings
from steelyard.kernels.cluster_state import (
    BROADCAST,
    BY_COST,
    EXACTLY,
    EXPONENTIAL,
    FORWARD,
    GROWING,
    HASH,
    IN_TURN,
    NONE,
    PER_ITEM,
    Cluster,
)
from tests.kernels.twins.mixing import GOLDEN
from tests.kernels.twins.osg import PlainInstance, PlainScheduler
from tests.sim.plain_parts import CostGroupings, Draw, Left, Markers, Output, PlainTuple

_WORD = (1 << 64) - 1


class PlainCluster(Markers, CostGroupings):
    """The cluster that was built, before its first event, run by hand.

    Parameters
    ----------
    cluster
        As it was built; it is only read. Its groupings must be other than policies.
    logs
        For each source its rows: time, item, key.
    groupings
        As they were made, where edges go by cost; they are only read.
    """

    def __init__(
        self, cluster: Cluster, logs: list[list[tuple[float, int, int]]], groupings: Groupings | None = None
    ) -> None:
        self.c = cluster
        self.logs = [deque(rows) for rows in logs]
        self.now = 0.0
        self.left: list[Left] = []
        self.queues: list[deque[PlainTuple]] = [deque() for _ in cluster.instances]
        self.promised: list[list[int]] = [[] for _ in cluster.instances]
        """Epochs of the tuples for which places are kept."""
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
        self.local_free = [0.0] * len(cluster.machines)
        self.opened: list[dict[int, PlainTuple]] = [{} for _ in cluster.instances]
        """Of the present window: for each key its last tuple."""
        self.ends: dict[int, float] = {}
        """When the present windows end."""
        self.closing: list[list[PlainTuple]] = [[] for _ in cluster.instances]
        """Results that nobody works on yet."""
        self.results: dict[int, list[PlainTuple]] = {}
        """Results that a server works on."""
        self.debt = [0.0] * len(cluster.servers)
        self.random = [int(row["random"]) for row in cluster.servers]
        self.epoch = [0] * len(cluster.instances)
        self.called: set[int] = set()
        self.came: list[set[tuple[int, int]]] = [set() for _ in cluster.instances]
        """Channels on which a marker has come, and nothing is taken any more."""
        self.channels: list[set[tuple[int, int]]] = [set() for _ in cluster.instances]
        for edge in range(len(cluster.edges)):
            for sender in self._senders(edge):
                for dest in self._receivers(edge, sender):
                    self.channels[dest].add((edge, sender))
        self.saving: set[int] = set()
        self.saved: set[int] = set()
        self.snapshot = (0.0, 0.0)
        self.awaited: set[int] = set()
        self.completed: list[float] = []
        self.since = [0.0] * len(cluster.servers)
        self.worked = [0.0] * len(cluster.instances)
        self.schedulers: list[PlainScheduler] = []
        self.learners: list[PlainInstance] = []
        if groupings is not None:
            for row in cluster.edges[cluster.edges["grouping"] == BY_COST]:
                self._add_grouping(groupings, row)
        self.ready = deque(int(cluster.instances[row["instance"]]["first_server"]) for row in cluster.sources)

    def run_until(self, until: float) -> list[Left]:
        """Go on to the moment `until`; all tuples that have left."""
        self._settle()
        while (event := self._next())[0] <= until:
            time, kind, which = event
            self._go_to(time)
            if kind == 0:
                server = min(self.running[which], key=lambda one: (self.running[which][one], one))
                del self.running[which][server]
                if server in self.saving:
                    self.saved.add(server)
                else:
                    self._end_service(server)
                self.ready.append(server)
            elif kind == 1:
                self.ready.append(int(self.c.instances[self.c.sources[which]["instance"]]["first_server"]))
            elif kind == 3:
                self._end_window(which)
            else:
                _, _, dest, arrived = self.flying.pop(which)
                self._arrive(dest, arrived)
            self._settle()
        self._go_to(until)
        return self.left

    def _go_to(self, time: float) -> None:
        for machine in range(len(self.running)):
            rate = self._rate(machine)
            for server in self.running[machine]:
                self.running[machine][server] -= rate * (time - self.now)
        self.now = time

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
        events += [(end, 3, number) for number, end in self.ends.items()]
        return min(events)

    def _rate(self, machine: int) -> float:
        row = self.c.machines[machine]
        return float(row["speed"] * min(1.0, row["cores"] / max(len(self.running[machine]), 1)))

    def _settle(self) -> None:
        while self.ready:
            server = self.ready.popleft()
            if server in self.saved:
                self._pass_on(server)
            if server in self.holds and self.holds[server].by != NONE and server in self.outbox:
                self._report(server)
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
            if number in self.called:
                self.called.remove(number)
                self._pass_on(server)
            rows = self.logs[source]
            if not rows or rows[0][0] > self.now:
                return None
            time, item, key = rows.popleft()
            return PlainTuple(item, key, time)
        if self.closing[number]:
            self._begin_results(server, number)
            return None
        spot = self._first(number)
        if spot == NONE and self._is_to_save(number):
            if self._begin_snapshot(server, number):
                return None
            spot = self._first(number)
        if spot == NONE:
            self.free[number].insert(0, server)
            return None
        taken = self.queues[number][spot]
        del self.queues[number][spot]
        for waiting in list(self.blocked[number]):
            sender = int(self.c.servers[waiting]["instance"])
            if self._has_place(sender, number):
                self.blocked[number].remove(waiting)
                self.promised[number].append(self.epoch[sender])
                self.outbox[waiting][0].granted = True
                self.ready.append(waiting)
        return taken

    def _end_window(self, number: int) -> None:
        del self.ends[number]
        self.closing[number] += self.opened[number].values()
        self.opened[number] = {}
        if self.free[number]:
            self.ready.append(self.free[number].pop(0))

    def _begin_results(self, server: int, number: int) -> None:
        self.results[server], self.closing[number] = self.closing[number], []
        row = self.c.instances[number]
        per_result = float(self.c.operators[row["operator"]]["per_result"] * row["slowdown"])
        demand = per_result * len(self.results[server]) + self.debt[server]
        self.debt[server] = 0.0
        self.holds[server] = self.results[server][0]
        self.since[server] = self.now
        if demand > 0:
            self.running[row["machine"]][server] = demand
        else:
            self._end_service(server)
            self.ready.appendleft(server)

    def _end_service(self, server: int) -> None:
        """A tuple goes into its window, or out of the operator; a window's results go out."""
        number = int(self.c.servers[server]["instance"])
        self.worked[number] += self.now - self.since[server]
        operator = self.c.operators[self.c.instances[number]["operator"]]
        if operator["closes"] == 0:
            self._put_out(server)
        elif server in self.results:
            self.outbox[server] = []
            for result in self.results.pop(server):
                edges, draw = range(operator["first_edge"], operator["first_edge"] + operator["edges"]), Draw()
                self.outbox[server] += [one for edge in edges for one in self._outputs(edge, draw, result)]
                if not edges:
                    self.left.append(Left(number, result.item, result.born, self.now))
        else:
            held = self.holds[server]
            if not self.opened[number]:
                self.ends[number] = (self.now // operator["closes"] + 1) * float(operator["closes"])
            self.opened[number][held.key] = held._replace(by=NONE)
            self.outbox[server] = []

    def _outputs(self, edge: int, draw: Draw, result: PlainTuple | None = None) -> list[Output]:
        row = self.c.edges[edge]
        everybody = range(row["first"], row["first"] + row["count"])
        chosen = everybody if row["grouping"] == BROADCAST else [NONE]
        return [Output(edge, dest, result=result, draw=draw) for dest in chosen]

    def _servers(self, number: int) -> range:
        row = self.c.instances[number]
        return range(row["first_server"], row["first_server"] + row["servers"])

    def _begin(self, server: int, taken: PlainTuple) -> bool:
        """Start a service; True where it is over at once."""
        self.holds[server] = taken
        self.since[server] = self.now
        instance = self.c.instances[self.c.servers[server]["instance"]]
        machine = self.c.machines[instance["machine"]]
        demand = self._service_time(server, self.c.operators[instance["operator"]], taken) * instance["slowdown"]
        demand += self.debt[server] + taken.remote * machine["serialise"]
        self.debt[server] = 0.0
        if demand <= 0:
            self._end_service(server)
            if taken.by != NONE:
                self._report(server)
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
            draw = Draw()
            for edge in edges:
                self.outbox[server] += self._outputs(edge, draw)
        if not edges:
            held = self.holds[server]
            self.left.append(Left(number, held.item, held.born, self.now))

    def _leave_machine(self, source: int, target: int, size: float) -> float:
        lines, unit = (self.line_free, "seconds_a_byte")
        if source == target:
            lines, unit = (self.local_free, "local_seconds_a_byte")
        lines[source] = max(lines[source], self.now) + size * float(self.c.machines[source][unit])
        return lines[source]

    def _choose(self, server: int, edge: int, key: int) -> int:
        row, instance = self.c.edges[edge], int(self.c.servers[server]["instance"])
        first, count, sender = int(row["first"]), int(row["count"]), instance - int(row["first_from"])
        if row["grouping"] == HASH:
            return first + key % count
        if row["grouping"] == FORWARD:
            return first + sender % count
        if row["grouping"] == IN_TURN:
            turn = int(row["first_turn"]) + sender
            chosen = self.c.dealt[row["first_dealt"] + self.turns[turn]]
            self.turns[turn] = (self.turns[turn] + 1) % int(row["dealt"])
            return first + int(chosen)
        return min(range(first, first + count), key=lambda dest: (self._load(dest), dest))

    def _load(self, instance: int) -> int:
        """Tuples that wait, travel to it or are served."""
        return len(self._epochs(instance)) + sum(server in self.holds for server in self._servers(instance))

    def _waiting(self, instance: int) -> list[PlainTuple]:
        return [one for one in self.queues[instance] if not one.marker]

    def _epochs(self, instance: int) -> list[int]:
        """Of all tuples that have a place in the queue: they wait, travel, or are promised one."""
        flying = [one.epoch for _, _, dest, one in self.flying if dest == instance and not one.marker]
        return [one.epoch for one in self._waiting(instance)] + flying + self.promised[instance]

    def _has_place(self, sender: int, dest: int) -> bool:
        """Tuples behind a marker keep no place from those before one."""
        before_marker = self.epoch[sender] == self.epoch[dest]
        counted = [one for one in self._epochs(dest) if not (before_marker and one > self.epoch[dest])]
        return len(counted) < int(self.c.instances[dest]["capacity"])

    def _send(self, server: int) -> bool:
        """Send what the server put out; False where a queue is full, and the server stays in line."""
        while self.outbox[server]:
            output = self.outbox[server][0]
            sent = output.result or self.holds[server]
            if not self._is_let_over(server, output):
                continue
            if output.dest == NONE and self.c.edges[output.edge]["grouping"] == BY_COST:
                self._choose_by_cost(server, output)
            elif output.dest == NONE:
                output.dest = self._choose(server, output.edge, sent.key)
            sender = int(self.c.servers[server]["instance"])
            if output.granted:
                self.promised[output.dest].remove(self.epoch[sender])
            elif not self._has_place(sender, output.dest):
                self.blocked[output.dest].append(server)
                return False
            self.outbox[server].pop(0)
            asked = sent._replace(request=output.request, load=output.load)
            row = self.c.edges[output.edge]
            if row["reports"]:
                asked = asked._replace(by=int(row["first_scheduler"]) + sender - int(row["first_from"]))
            self._travel(server, output.dest, output.edge, asked)
        return True

    def _is_let_over(self, server: int, output: Output) -> bool:
        """Whether it goes over its edge; if it takes another branch, it is dropped."""
        low, high = (float(self.c.edges[output.edge][end]) for end in ("low", "high"))
        if (low, high) == (0, 1):
            return True
        if output.draw.number is None:
            output.draw.number = self._uniform(server)
        if not low <= output.draw.number < high:
            self.outbox[server].pop(0)
            return False
        return True

    def _travel(self, server: int, dest: int, edge: int, sent: PlainTuple) -> None:
        sender = int(self.c.servers[server]["instance"])
        source = int(self.c.instances[sender]["machine"])
        target = int(self.c.instances[dest]["machine"])
        due = self._leave_machine(source, target, 0.0 if sent.marker else float(self.c.edges[edge]["bytes"]))
        if source != target and not sent.marker:
            self.debt[server] += self.c.machines[source]["serialise"]
        moved = sent._replace(remote=source != target, channel=(edge, sender), epoch=self.epoch[sender])
        self._fly(source, target, due, dest, moved)

    def _fly(self, source: int, target: int, due: float, dest: int, moved: PlainTuple) -> None:
        link = source * len(self.c.machines) + target if len(self.c.links) > 1 else 0
        due += float(self.c.links[link]["latency"])
        if due <= self.now and not any(way == link for _, way, _, _ in self.flying):
            self._arrive(dest, moved)
        else:
            self.flying.append((due, link, dest, moved))

    def _arrive(self, dest: int, arrived: PlainTuple) -> None:
        if arrived.letter is not None:
            self._read(arrived.letter)
            return
        self.queues[dest].append(arrived)
        if self.free[dest]:
            self.ready.append(self.free[dest].pop(0))

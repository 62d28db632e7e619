"""The plain twin of the event loop: a small cluster of lists, in which work is counted down and nothing is clever."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf, log
from typing import Any, NamedTuple

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
    RANDOM,
    Cluster,
)
from steelyard.kernels.mixing import GOLDEN
from steelyard.kernels.osg_plain import PlainInstance, PlainScheduler
from steelyard.kernels.osg_state import NOT_MARKED, Rule

_WORD = (1 << 64) - 1


class PlainTuple(NamedTuple):
    """What travels."""

    item: int
    key: int
    born: float
    remote: bool = False
    channel: tuple[int, int] = (NONE, NONE)
    """On which edge it comes, and from which instance."""
    epoch: int = 0
    """How many markers the sender had sent before it."""
    marker: bool = False
    by: int = NONE
    """The scheduler that chose where it goes, and waits for a report."""
    request: int = NOT_MARKED
    load: float = 0.0
    letter: Letter | None = None


class Letter(NamedTuple):
    """What an instance writes to a scheduler: a reply, or matrices."""

    scheduler: int
    sender: int
    totals: tuple[float, float]
    reply: tuple[int, float] | None = None
    times: tuple[float, float] = (0.0, 0.0)
    cells: list[list[tuple[float, float]]] | None = None


@dataclass
class Output:
    """What a server still has to send."""

    edge: int
    dest: int = NONE
    granted: bool = False
    """Whether a place in the receiver's queue is kept for it."""
    request: int = NOT_MARKED
    load: float = 0.0
    drawn: bool = False
    """Whether chance let it over its edge."""
    result: PlainTuple | None = None
    """What is sent, where it is a window's result, and not the server's tuple."""


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

    def _add_grouping(self, groupings: Groupings, edge: Any) -> None:
        """Schedulers and instances of one edge, behind those of the edges before."""
        rule = Rule(*groupings.rules[edge["rule"]].tolist())
        hashes = [tuple(row) for row in groupings.hashes[edge["rule"], : groupings.depths[edge["rule"]]].tolist()]
        self.schedulers += [PlainScheduler(rule, hashes, rule.columns, number) for number in range(rule.schedulers)]
        self.learners += [
            PlainInstance(rule, hashes, rule.columns, number, rule.schedulers) for number in range(rule.instances)
        ]

    def send_markers(self, snapshot: float, per_kept: float) -> None:
        """Begin a checkpoint; `completed` has the moments at which one was complete."""
        self.snapshot = (snapshot, per_kept)
        self.called = {int(number) for number in self.c.sources["instance"]}
        ends = [n for n, row in enumerate(self.c.instances) if not self.c.operators[row["operator"]]["edges"]]
        self.awaited = {number for number in ends if self.channels[number] or number in self.called}
        for number in sorted(self.called):
            server = int(self.c.instances[number]["first_server"])
            if server not in self.holds and server not in self.ready:
                self.ready.append(server)

    def _senders(self, edge: int) -> list[int]:
        """Instances that send on an edge, and get markers or are sources."""
        rows = self.c.instances
        sending = {n for n, one in enumerate(self.c.operators) if 0 <= edge - one["first_edge"] < one["edges"]}
        own = [number for number, row in enumerate(rows) if int(row["operator"]) in sending]
        return [number for number in own if rows[number]["source"] != NONE or self.channels[number]]

    def _receivers(self, edge: int, sender: int) -> list[int]:
        """Instances to which the sender has a channel."""
        row = self.c.edges[edge]
        first, count = int(row["first"]), int(row["count"])
        if row["grouping"] == FORWARD:
            return [first + (sender - int(row["first_from"])) % count]
        return list(range(first, first + count))

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
                edges = range(operator["first_edge"], operator["first_edge"] + operator["edges"])
                self.outbox[server] += [one for edge in edges for one in self._outputs(edge, result)]
                if not edges:
                    self.left.append(Left(number, result.item, result.born, self.now))
        else:
            held = self.holds[server]
            if not self.opened[number]:
                self.ends[number] = (self.now // operator["closes"] + 1) * float(operator["closes"])
            self.opened[number][held.key] = held._replace(by=NONE)
            self.outbox[server] = []

    def _outputs(self, edge: int, result: PlainTuple | None = None) -> list[Output]:
        row = self.c.edges[edge]
        everybody = range(row["first"], row["first"] + row["count"])
        chosen = everybody if row["grouping"] == BROADCAST else [NONE]
        return [Output(edge, dest, result=result) for dest in chosen]

    def _first(self, number: int) -> int:
        """Where the first tuple is that the instance may take; markers before it are taken."""
        queue, spot = self.queues[number], 0
        while spot < len(queue):
            if queue[spot].channel in self.came[number]:
                spot += 1
            elif queue[spot].marker:
                self.came[number].add(queue[spot].channel)
                del queue[spot]
            else:
                return spot
        return NONE

    def _is_to_save(self, number: int) -> bool:
        servers = self._servers(number)
        idle = not any(server in self.holds or server in self.saving for server in servers)
        return idle and bool(self.came[number]) and self.came[number] == self.channels[number]

    def _begin_snapshot(self, server: int, number: int) -> bool:
        """True where it takes time."""
        window = self.c.operators[self.c.instances[number]["operator"]]["window"]
        kept = [one for one in self.kept[number] if one == (int(self.now // window) if window else 0)]
        demand = self.snapshot[0] + self.snapshot[1] * len(kept)
        self.saving.add(server)
        if demand <= 0:
            self._pass_on(server)
            return False
        self.running[self.c.instances[number]["machine"]][server] = demand
        return True

    def _pass_on(self, server: int) -> None:
        """The snapshot is taken: send markers, and let the other servers go on."""
        number = int(self.c.servers[server]["instance"])
        self.saving.discard(server)
        self.saved.discard(server)
        self.epoch[number] += 1
        self.came[number] = set()
        operator = self.c.operators[self.c.instances[number]["operator"]]
        for edge in range(operator["first_edge"], operator["first_edge"] + operator["edges"]):
            for dest in self._receivers(edge, number):
                self._travel(server, dest, edge, PlainTuple(0, 0, 0.0, marker=True))
        for _ in range(min(len(self._waiting(number)) - 1, len(self.free[number]))):
            self.ready.append(self.free[number].pop(0))
        if number in self.awaited:
            self.awaited.remove(number)
            if not self.awaited:
                self.completed.append(self.now)

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
            for edge in edges:
                self.outbox[server] += self._outputs(edge)
        if not edges:
            held = self.holds[server]
            self.left.append(Left(number, held.item, held.born, self.now))

    def _choose_by_cost(self, server: int, output: Output) -> None:
        row, held = self.c.edges[output.edge], output.result or self.holds[server]
        by = int(row["first_scheduler"] + self.c.servers[server]["instance"] - row["first_from"])
        costs = [self._cost(int(row["first"]) + to, held.item) for to in range(row["count"])]
        to, output.request, output.load = self.schedulers[by].choose(held.item, costs, self.now)
        output.dest = int(row["first"]) + to

    def _cost(self, instance: int, item: int) -> float:
        row = self.c.instances[instance]
        operator = self.c.operators[row["operator"]]
        table = self.c.tables[operator["table_first"] : operator["table_first"] + operator["table_size"]]
        seconds = table[item % len(table)] if operator["law"] == PER_ITEM else operator["mean"]
        return float(seconds * row["slowdown"] / self.c.machines[row["machine"]]["speed"])

    def _report(self, server: int) -> None:
        """The instance learns from the tuple, and writes to schedulers."""
        held, number = self.holds[server], int(self.c.servers[server]["instance"])
        self.holds[server] = held._replace(by=NONE)
        which = next(n for n, one in enumerate(self.c.edges) if self._is_scheduler(one, held.by))
        edge = self.c.edges[which]
        own, at = held.by - int(edge["first_scheduler"]), number - int(edge["first"])
        learner = self.learners[int(edge["first_learner"]) + at]
        send = learner.execute(held.item, self.now - self.since[server], own)
        learner.worked = self.worked[number] / int(self.c.instances[number]["servers"])
        if held.request != NOT_MARKED:
            reply = (held.request, learner.clock(own, self.now) - held.load)
            self._write(number, edge, Letter(held.by, at, learner.totals, reply=reply, times=learner.answer(own)), 8)
        if send:
            cells = [list(row) for row in learner.sketch.cells]
            for scheduler in range(learner.rule.schedulers):
                letter = Letter(int(edge["first_scheduler"]) + scheduler, at, learner.totals, cells=cells)
                self._write(number, edge, letter, 3 + 2 * sum(map(len, cells)))
            learner.forget()

    def _is_scheduler(self, edge: Any, by: int) -> bool:
        if edge["grouping"] != BY_COST:
            return False
        first = int(edge["first_scheduler"])
        return first <= by < first + self.schedulers[first].rule.schedulers

    def _write(self, writer: int, edge: Any, letter: Letter, numbers: int) -> None:
        """A letter goes over the line of its writer's machine; nobody has to serialise it."""
        reader = int(edge["first_from"]) + letter.scheduler - int(edge["first_scheduler"])
        source, target = (int(self.c.instances[one]["machine"]) for one in (writer, reader))
        due = self._leave_machine(source, target, 8.0 * numbers)
        self._fly(source, target, due, NONE, PlainTuple(0, 0, 0.0, letter=letter))

    def _leave_machine(self, source: int, target: int, size: float) -> float:
        lines, unit = (self.line_free, "seconds_a_byte")
        if source == target:
            lines, unit = (self.local_free, "local_seconds_a_byte")
        lines[source] = max(lines[source], self.now) + size * float(self.c.machines[source][unit])
        return lines[source]

    def _read(self, letter: Letter) -> None:
        scheduler = self.schedulers[letter.scheduler]
        if letter.reply is not None:
            scheduler.take_reply(letter.sender, *letter.reply, letter.totals, letter.times)
        elif letter.cells is not None:
            scheduler.take_matrices(letter.sender, letter.cells, letter.totals)

    def _choose(self, server: int, edge: int, key: int) -> int:
        row, instance = self.c.edges[edge], int(self.c.servers[server]["instance"])
        first, count, sender = int(row["first"]), int(row["count"]), instance - int(row["first_from"])
        if row["grouping"] == HASH:
            return first + key % count
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
        """Draw whether it goes over its edge, once, for all copies of a broadcast; if not, they are dropped."""
        share = float(self.c.edges[output.edge]["share"])
        if share == 1 or output.drawn:
            return True
        copies = 1
        if self.c.edges[output.edge]["grouping"] == BROADCAST:
            copies = int(self.c.edges[output.edge]["count"])
        if self._uniform(server) >= share:
            del self.outbox[server][:copies]
            return False
        for copy in self.outbox[server][:copies]:
            copy.drawn = True
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

"""What the plain twin of the event loop is made of: what travels, checkpoints with markers, groupings by cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from steelyard.kernels.cluster_groupings import Groupings
from steelyard.kernels.cluster_state import BY_COST, FORWARD, NONE, PER_ITEM
from steelyard.kernels.osg_state import NOT_MARKED, Rule
from tests.kernels.twins.osg import PlainInstance, PlainScheduler


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
class Draw:
    """Which of its operator's branches one tuple that comes out takes; drawn when it is needed."""

    number: float | None = None


@dataclass
class Output:
    """What a server still has to send."""

    edge: int
    dest: int = NONE
    granted: bool = False
    """Whether a place in the receiver's queue is kept for it."""
    request: int = NOT_MARKED
    load: float = 0.0
    draw: Draw = field(default_factory=Draw)
    result: PlainTuple | None = None
    """What is sent, where it is a window's result, and not the server's tuple."""


class Left(NamedTuple):
    """A tuple that left the cluster."""

    instance: int
    item: int
    born: float
    done: float


class Markers:
    """Checkpoints with markers: a part of the twin."""

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


class CostGroupings:
    """Groupings by cost: a part of the twin."""

    def _add_grouping(self, groupings: Groupings, edge: Any) -> None:
        """Schedulers and instances of one edge, behind those of the edges before."""
        rule = Rule(*groupings.rules[edge["rule"]].tolist())
        hashes = [tuple(row) for row in groupings.hashes[edge["rule"], : groupings.depths[edge["rule"]]].tolist()]
        self.schedulers += [PlainScheduler(rule, hashes, rule.columns, number) for number in range(rule.schedulers)]
        self.learners += [
            PlainInstance(rule, hashes, rule.columns, number, rule.schedulers) for number in range(rule.instances)
        ]

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

    def _read(self, letter: Letter) -> None:
        scheduler = self.schedulers[letter.scheduler]
        if letter.reply is not None:
            scheduler.take_reply(letter.sender, *letter.reply, letter.totals, letter.times)
        elif letter.cells is not None:
            scheduler.take_matrices(letter.sender, letter.cells, letter.totals)

"""The plain twins of schedulers, instances and queues of shuffle groupings: slow, and close to the paper's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from steelyard.kernels.osg_state import (
    ASKED,
    IN_TURN,
    KNOWN,
    LEARNT_NOISE,
    NOT_MARKED,
    PRIOR_TUPLES,
    RECENT,
    RECENT_REPLIES,
    ROUND_ROBIN,
    RUN,
    SEND_ALL,
    SHUFFLED,
    STABILIZING,
    START,
    UNLEARNT_NOISE,
    WAIT_ALL,
    Rule,
)
from tests.kernels.twins.mixing import GOLDEN, choice_plain
from tests.kernels.twins.osg_sketch import PlainSketch

Hashes = list[tuple[int, int]]
Totals = tuple[float, float]


def owner_plain(item: int, instances: int) -> int:
    """The plain twin of `owner`."""
    return choice_plain(item, 0x51, instances)


def permuted_plain(order: list[int], seed: int, turn: int) -> list[int]:
    """The plain twin of `permute`."""
    found = list(order)
    for last in range(len(found) - 1, 0, -1):
        other = choice_plain(turn * 4096 + last + (seed - 1) * GOLDEN, 1, last + 1)
        found[last], found[other] = found[other], found[last]
    return found


class PlainScheduler:
    """The plain twin of one scheduler of a bank."""

    def __init__(self, rule: Rule, hashes: Hashes, columns: int, number: int = 0) -> None:
        k = rule.instances
        self.rule = rule
        self.mode = ROUND_ROBIN
        self.turn = 0 if rule.kind == SHUFFLED else number % k
        self.round = number << 40 if rule.kind == SHUFFLED else 0
        self.order = list(range(k))
        if rule.kind == SHUFFLED:
            self.order = permuted_plain(self.order, rule.seed, self.round)
        self.epoch = 0
        self.since = 0
        self.loads = [0.0] * k
        self.replies: dict[int, float] = {}
        self.corrections = [0.0] * k
        self.known: set[int] = set()
        self.sketches = [PlainSketch(hashes, columns) for _ in range(k)]
        self.totals: list[Totals] = [(0.0, 0.0)] * k
        self.speeds = [1.0] * k
        self.learnt_at = [1.0] * k
        self.sent = [(0, 0.0)] * k
        self.asked: list[dict[int, tuple[int, float]]] = [{} for _ in range(k)]
        self.requests = [0] * k
        self.last_reply: list[tuple[float, float, int, float]] = [(0.0, 0.0, 0, 0.0)] * k
        self.spent = [(0.0, 0.0, 0.0)] * k
        self.latest: dict[int, tuple[float, float, float]] = {}
        self.time_of: Totals | None = None
        """Recent time of instances on its own tuples, and on anything."""
        self.unmarked = [0] * k
        self.gaps = [1] * k

    def _mean(self, at: int) -> float:
        """Mean time of a tuple on an instance; with continuous synchronisation, at the speed of its matrices."""
        if not self.rule.continuous:
            count, time = self.totals[at]
            return time / count if count else 0.0
        counts, times = (sum(column) for column in zip(*self.totals, strict=True))
        return times / counts * self.learnt_at[at] if counts else 0.0

    def expected(self, to: int, item: int) -> float:
        """As `expected`."""
        by = owner_plain(item, self.rule.instances) if self.rule.shared else to
        learnt = self.sketches[by].estimate(item, self._mean(by) if self.rule.mean_unseen else 0.0)
        return learnt / self.learnt_at[by] * self.speeds[to] if self.rule.continuous else learnt

    def _take_speed(self, sender: int, request: int, totals: Totals) -> None:
        """As `_take_speed`."""
        if request not in self.asked[sender]:
            return
        sent, thought = self.asked[sender][request]
        before = self.last_reply[sender]
        self.last_reply[sender] = (*totals, sent, thought)
        done, took, tuples, work = (now - then for now, then in zip(self.last_reply[sender], before, strict=True))
        if done <= 0 or took < 0 or tuples <= 0 or work <= 0:
            return
        self.latest[sender] = (tuples, work, took / done * tuples)
        if len(self.latest) < len(self.loads):
            return
        _, all_thought, all_took = (sum(self.latest[at][part] for at in range(len(self.loads))) for part in range(3))
        if all_took > 0:
            self._compare(all_took / all_thought)
        self.latest.clear()

    def _compare(self, usual: float) -> None:
        noise = LEARNT_NOISE if len(self.known) == len(self.loads) else UNLEARNT_NOISE
        for at, (tuples, work, took) in self.latest.items():
            fading = RECENT / (RECENT + tuples)
            old = self.spent[at]
            recent, thought = fading * old[0] + tuples, fading * old[1] + work
            self.spent[at] = (recent, thought, fading * old[2] + took / usual)
            excess = self.spent[at][2] / thought - 1.0
            surprise = excess * excess * recent / noise
            self.speeds[at] = 1.0 + excess * (1.0 - 1.0 / surprise) if surprise > 1.0 else 1.0

    def choose(self, item: int, costs: Sequence[float], now: float) -> tuple[int, int, float]:
        """As `choose`."""
        if self.rule.kind == KNOWN:
            to = self.loads.index(min(self.loads))
            if self.rule.idle_aware:
                self.loads = [max(load, now) for load in self.loads]
                to = self._least_in_turn()
            self.loads[to] += costs[to]
            return to, NOT_MARKED, 0.0
        if self.rule.kind in (IN_TURN, SHUFFLED):
            return self._in_turn(), NOT_MARKED, 0.0
        if self.rule.continuous:
            return self._choose_continuously(item, now)
        if self.mode == ROUND_ROBIN:
            to, self.turn = self.turn, (self.turn + 1) % len(self.loads)
            return to, NOT_MARKED, 0.0
        self.since += 1
        if self.mode == RUN and 0 < self.rule.resync < self.since:
            self._begin_epoch()
        others = self.rule.schedulers if self.rule.elapsed else 1
        if self.mode == SEND_ALL:
            to = self.turn
            self.loads[to] += others * self.expected(to, item)
            self.turn += 1
            marked = (to, self.epoch, self.loads[to])
            if self.turn == len(self.loads):
                self.mode = WAIT_ALL
                self._end_epoch_if_all_replied()
            return marked
        to = self.loads.index(min(self.loads))
        self.loads[to] += others * self.expected(to, item)
        return to, NOT_MARKED, 0.0

    def _least_in_turn(self) -> int:
        k = len(self.loads)
        to = min(range(k), key=lambda at: (self.loads[at], (at - self.turn) % k))
        self.turn = (to + 1) % k
        return to

    def _in_turn(self) -> int:
        to = self.order[self.turn]
        self.turn += 1
        if self.turn == len(self.order):
            self.turn = 0
            self.round += 1
            if self.rule.reshuffle:
                self.order = permuted_plain(self.order, self.rule.seed, self.round)
        return to

    def _choose_continuously(self, item: int, now: float) -> tuple[int, int, float]:
        if self.mode == ROUND_ROBIN:
            to, self.turn = self.turn, (self.turn + 1) % len(self.loads)
        else:
            to = self.loads.index(min(self.loads))
            if self.rule.idle_aware:
                idle = [max(0.0, now - load) for load in self.loads]
                self.corrections = [a + b for a, b in zip(self.corrections, idle, strict=True)]
                self.loads = [max(load, now) for load in self.loads]
                to = self._least_in_turn()
        thought = self.expected(to, item)
        factor = self.time_of[1] / self.time_of[0] if self.time_of else self.rule.schedulers
        self.loads[to] += factor * thought
        self.sent[to] = (self.sent[to][0] + (thought > 0), self.sent[to][1] + thought / self.speeds[to])
        self.unmarked[to] += 1
        _, before = self.asked[to].get(self.requests[to], (0, 0.0))
        if self.unmarked[to] < self.gaps[to] or 0 < self.sent[to][1] - before < self.rule.apart:
            return to, NOT_MARKED, 0.0
        self.unmarked[to] = 0
        self.gaps[to] = min(2 * self.gaps[to], self.rule.resync)
        self.requests[to] += 1
        self.asked[to][self.requests[to]] = self.sent[to]
        self.asked[to].pop(self.requests[to] - ASKED, None)
        return to, self.requests[to], self.loads[to] - self.corrections[to]

    def _begin_epoch(self) -> None:
        self.mode, self.turn, self.epoch, self.replies = SEND_ALL, 0, self.epoch + 1, {}

    def _end_epoch_if_all_replied(self) -> None:
        if self.mode == WAIT_ALL and len(self.replies) == len(self.loads):
            self.loads = [load + self.replies[at] for at, load in enumerate(self.loads)]
            self.mode, self.since = RUN, 0

    def take_matrices(self, sender: int, cells: list[list[Totals]], totals: Totals) -> None:
        """As `take_matrices`."""
        self.sketches[sender].cells = [list(row) for row in cells]
        self.learnt_at[sender] = self.speeds[sender]
        count, time, sent, thought = self.last_reply[sender]
        self.last_reply[sender] = (count - 0.5 * totals[0], time - 0.5 * totals[1], sent, thought)
        self.totals[sender] = totals
        self.known.add(sender)
        if not self.rule.continuous and (self.mode != ROUND_ROBIN or len(self.known) == len(self.loads)):
            self._begin_epoch()

    def _take_share(self, times: Totals, totals: Totals) -> None:
        """As `_take_share`."""
        if min(times) <= 0:
            return
        if self.time_of is None:
            usual = PRIOR_TUPLES * totals[1] / totals[0]
            self.time_of = (usual, usual * self.rule.schedulers)
        fading = 1 - 1 / (RECENT_REPLIES * len(self.loads))
        self.time_of = (fading * self.time_of[0] + times[0], fading * self.time_of[1] + times[1])

    def take_reply(self, sender: int, epoch: int, delta: float, totals: Totals, times: Totals) -> None:
        """As `take_reply`."""
        if self.rule.continuous:
            self.loads[sender] += delta - self.corrections[sender]
            self.corrections[sender] = delta
            self.totals[sender] = totals
            self._take_speed(sender, epoch, totals)
            self._take_share(times, totals)
            self.replies[sender] = delta
            if len(self.replies) == len(self.loads):
                self.mode = RUN
        elif epoch == self.epoch and sender not in self.replies and self.mode in (SEND_ALL, WAIT_ALL):
            self.replies[sender] = delta
            self._end_epoch_if_all_replied()


class PlainInstance:
    """The plain twin of one instance of a bank."""

    def __init__(self, rule: Rule, hashes: Hashes, columns: int, number: int, schedulers: int = 1) -> None:
        self.rule = rule
        self.number = number
        self.state = START
        self.in_window, self.window_time = 0, 0.0
        self.sketch = PlainSketch(hashes, columns)
        self.snapshot: list[list[float]] = []
        self.stable: list[list[float]] | None = None
        self.busy = [0.0] * schedulers
        self.worked = 0.0
        self.answered: list[Totals] = [(0.0, 0.0)] * schedulers
        self.totals: Totals = (0.0, 0.0)

    def answer(self, by: int) -> Totals:
        """As `answer`."""
        before, self.answered[by] = self.answered[by], (self.busy[by], self.worked)
        return self.busy[by] - before[0], self.worked - before[1]

    def execute(self, item: int, time: float, by: int) -> bool:
        """As `execute`."""
        self.busy[by] += time
        self.worked += time
        self.totals = (self.totals[0] + 1.0, self.totals[1] + time)
        if not self.rule.shared or owner_plain(item, self.rule.instances) == self.number:
            self.sketch.add(item, time, self.rule.conservative)
        self.in_window += 1
        self.window_time += time
        if self.in_window < self.rule.window or self.window_time < self.rule.apart:
            return False
        self.in_window, self.window_time = 0, 0.0
        before, self.snapshot = self.snapshot, self.sketch.snapshot()
        if self.state == START:
            self.state = STABILIZING
            return False
        if self.sketch.relative_error(before, self.rule.masked) > self.rule.tolerance:
            return False
        self.state = START
        reference, self.stable = self.stable, self.snapshot
        if self.rule.on_change and reference is not None:
            if self.sketch.relative_error(reference, self.rule.masked) > self.rule.tolerance:
                return True
            self.forget()
            return False
        return True

    def forget(self) -> None:
        """As `forget`."""
        self.sketch.scale(self.rule.keep)
        self.totals = (self.totals[0] * 0.5, self.totals[1] * 0.5)

    def clock(self, by: int, finished: float) -> float:
        """As `clock_of`."""
        return finished if self.rule.elapsed else self.busy[by]


@dataclass
class PlainMessage:
    """What is under way from an instance."""

    due: float
    sender: int
    scheduler: int
    totals: Totals
    reply: tuple[int, float] | None = None
    times: Totals = (0.0, 0.0)
    cells: list[list[Totals]] | None = None


@dataclass
class PlainQueues:
    """The plain twin of `simulate`."""

    rule: Rule
    hashes: Hashes
    columns: int
    schedulers: int = 1
    latency: float = 0.0
    to: list[int] = field(default_factory=list)
    finish: list[float] = field(default_factory=list)

    def run(self, items: list[int], arrivals: list[float], costs: list[list[float]]) -> None:
        """Fill `to` and `finish`; `costs` has the time of each tuple on each instance."""
        k = self.rule.instances
        senders = [PlainScheduler(self.rule, self.hashes, self.columns, number) for number in range(self.schedulers)]
        instances = [PlainInstance(self.rule, self.hashes, self.columns, at, self.schedulers) for at in range(k)]
        queues: list[list[tuple[float, int, int, float]]] = [[] for _ in range(k)]
        mail: list[PlainMessage] = []
        for row, item in enumerate(items):
            now = arrivals[row]
            while True:
                heads = [(queue[0][0], at) for at, queue in enumerate(queues) if queue]
                soonest = min(heads, default=(float("inf"), -1))
                if mail and mail[0].due <= min(now, soonest[0]):
                    self._deliver(senders, mail.pop(0))
                elif soonest[0] <= now:
                    at = soonest[1]
                    finished, done, epoch, carried = queues[at].pop(0)
                    by = done % self.schedulers
                    mail += self._finished(instances[at], items[done], costs[done][at], by, finished, epoch, carried)
                else:
                    break
            to, epoch, carried = senders[row % self.schedulers].choose(item, costs[row], now)
            last = [self.finish[i] for i in range(row) if self.to[i] == to]
            end = max([now, *last[-1:]]) + costs[row][to]
            self.to.append(to)
            self.finish.append(end)
            queues[to].append((end, row, epoch, carried))

    def _finished(
        self, at: PlainInstance, item: int, time: float, by: int, finished: float, epoch: int, carried: float
    ) -> list[PlainMessage]:
        send = at.execute(item, time, by)
        due = finished + self.latency
        messages = []
        if epoch != NOT_MARKED:
            reply = (epoch, at.clock(by, finished) - carried)
            messages.append(PlainMessage(due, at.number, by, at.totals, reply=reply, times=at.answer(by)))
        if send:
            cells = [list(row) for row in at.sketch.cells]
            messages.append(PlainMessage(due, at.number, by, at.totals, cells=cells))
            at.forget()
        return messages

    def _deliver(self, senders: list[PlainScheduler], message: PlainMessage) -> None:
        if message.reply is not None:
            epoch, delta = message.reply
            senders[message.scheduler].take_reply(message.sender, epoch, delta, message.totals, message.times)
        if message.cells is not None:
            for sender in senders:
                sender.take_matrices(message.sender, message.cells, message.totals)

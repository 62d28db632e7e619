"""A dataflow on workers that exist on paper, checkpointed by the library's own protocols.

Every worker has one core and does one thing after the other: it reads an epoch of a source, processes rows of a
message, takes a checkpoint. What it sends leaves when it is done. The halves of the protocol are called at the moments
that `steelyard.checkpoint.protocol` names, and decide; nothing here knows which protocol it is.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from steelyard.checkpoint import LOCAL, ROUND, Beside, CheckpointProtocol, protocol
from steelyard.sim.checkpoints.costs import ProtocolCosts, measured_costs
from steelyard.sim.checkpoints.epochs import Epochs
from steelyard.sim.checkpoints.graph import Graph
from steelyard.sim.checkpoints.job import Job
from steelyard.sim.checkpoints.recovery import Failure, Logs, Recovery
from steelyard.sim.checkpoints.rows import RowWork
from steelyard.sim.checkpoints.running import Instance, Item, Marker, Order, Read, Rows, Sends, Worker
from steelyard.sim.checkpoints.taking import Taking
from steelyard.sim.checkpoints.tally import Outcome, Tally

LOOK_EVERY = 0.05
"""Seconds between two looks at timers, and at whether a round begins."""
FORGET_EVERY = 10.0
"""Seconds between two truncations of logs."""
TICK, WORKERS_A_TICK = 0.1, 100
"""Seconds of an epoch: those of the published generator, and more of them with more than ten workers."""


def tick_of(workers: int) -> float:
    """Seconds of an epoch: longer with more workers, since messages grow with their square.

    >>> tick_of(10), tick_of(50), tick_of(100)
    (0.1, 0.5, 1.0)
    """
    return max(TICK, workers / WORKERS_A_TICK)


class Simulation:
    """A job under a protocol.

    Parameters
    ----------
    job
        What runs.
    named
        The protocol, by name or as an object.
    rate
        Rows per second that become available, of all sources together.
    costs
        Of everything beside operators; without them, those of `measured.json`.
    seed
        Chooses keys.
    tick
        Seconds of an epoch of a source.
    warm
        Seconds for which the stream has gone on before: states are as large as they are then.
    failures
        Workers that fail, and when.
    detection
        Seconds until a failure is noticed.
    orders_first
        Whether a source begins a round before what waits at its worker; otherwise in its turn, as in the published
        system, which lets everything come to an end before a snapshot.
    unchecked
        Whether a protocol runs also where it says that it cannot.

    Examples
    --------
    >>> from steelyard.sim.checkpoints import Feed, Hop, Job, Stage
    >>> job = Job("count", (Feed("bids"),), (Stage("count"),), (Hop("bids", "count", keyed=True),), workers=3)
    >>> run = Simulation(job, "coordinated?interval=1", rate=300, costs=ProtocolCosts()).run(3.5)
    >>> run.tally.taken["round"], run.outcome().latency_p50 < 0.01
    (18, True)
    """

    def __init__(
        self,
        job: Job,
        named: str | CheckpointProtocol,
        rate: float,
        *,
        costs: ProtocolCosts | None = None,
        seed: int = 0,
        tick: float | None = None,
        warm: float = 0.0,
        failures: Sequence[Failure] = (),
        detection: float = 0.0,
        orders_first: bool = False,
        unchecked: bool = False,
    ) -> None:
        self.job, self.rate, self.protocol = job, rate, protocol(named)
        if not unchecked:
            self.protocol.require(job.cyclic)
        self.costs = costs or measured_costs()
        self.epochs = Epochs(job, rate, tick or tick_of(job.workers), seed)
        self.graph = Graph(job, self.protocol, self.costs)
        self.central = self.protocol.central(self.graph.names, self.graph.wires)
        self.now = 0.0
        self.tally = Tally()
        self.logs = Logs(self.protocol.logged and bool(failures))
        self.recovery = Recovery(self, detection, bool(failures))
        self._last_epoch: dict[str, int] = {}
        """By source: epochs that it reads, where no more become available."""
        self._orders_first = orders_first
        self.paused = False
        """Whether sources wait until everything is at rest: a protocol with rounds and without markers."""
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = count()
        self._under_way = 0
        self._stopping: int | None = None
        halves = [one.half for one in self.graph.instances.values()]
        self.rows = RowWork(self, halves[0])
        self.taking = Taking(self)
        self._warm_up(warm)
        self._begin(halves[0], failures)

    def _warm_up(self, seconds: float) -> None:
        flows = self.job.flows()
        for one in self.graph.instances.values():
            if one.window_seconds is None:
                kept = sum(flows[hop] * hop.kept_bytes for hop in self.job.into(one.operator.name))
                one.first_kept += kept * self.rate / len(self.job.hosts(one.operator.name)) * seconds
                one.kept = one.first_kept

    def _begin(self, half: Beside, failures: Iterable[Failure]) -> None:
        if type(half).due is not Beside.due:
            for worker in self.graph.workers:
                self.at(LOOK_EVERY * (worker.number + 1) / len(self.graph.workers), self._look, worker)
        self.at(LOOK_EVERY, self._next_round, None)
        if self.logs.kept:
            self.at(FORGET_EVERY, self._forget, None)
        for failure in failures:
            self.at(failure.at, self.recovery.fail, failure)
        self.start_sources()

    def at(self, time: float, act: Callable[[Any], None], what: Any) -> None:
        """Do something later."""
        heapq.heappush(self._events, (time, next(self._order), act, what))

    def run(self, until: float) -> Simulation:
        """Go on until this second."""
        collects = gc.isenabled()
        gc.disable()  # millions of tuples are kept and none of them are in cycles: looking for some takes half the time
        try:
            while self._events and self._events[0][0] <= until:
                self.now, _, act, what = heapq.heappop(self._events)
                act(what)
        finally:
            if collects:
                gc.enable()
        self.now = until
        return self

    def settle(self, most: float = 600.0) -> bool:
        """No more rows become available: go on until all is at rest, or for so long; whether it is."""
        self._last_epoch = {one.name: self.epochs.available(one.worker.number, self.now) for one in self.sources()}
        end = self.now + most
        while self.now < end:
            self.run(self.now + 1.0)
            read = all(one.next_epoch >= self._last_epoch[one.name] for one in self.sources())
            if read and not self._under_way and not self.recovery.down and self._idle():
                return True
        return False

    def outcome(self, after: float = 0.0, sink: str | None = None) -> Outcome:
        """What was found, from a second on; latencies and rows of one sink, or of all."""
        charges = [*self.graph.charges.values(), *self.graph.unkept.values()]
        self.tally.data_bytes = sum(one.sent_bytes for one in charges)
        self.tally.messages = sum(one.messages for one in charges)
        return self.tally.outcome(after, self.now, sink)

    def sources(self) -> list[Instance]:
        """All instances that read."""
        return [one for one in self.graph.instances.values() if one.is_source]

    def start_sources(self) -> None:
        """Let every source read as soon as it has something to read."""
        for one in self.sources():
            self._read_on(one)

    def _read_on(self, one: Instance) -> None:
        """Put the next epoch of a source in the queue, now or when it is available."""
        if one.reading or self.paused:
            return
        one.reading = True
        ready = self.epochs.time(one.worker.number, one.next_epoch)
        if ready <= self.now:
            self._ready(one)
        else:
            self.at(ready, self._ready, one)

    def _ready(self, one: Instance) -> None:
        if self.paused or one.next_epoch >= self._last_epoch.get(one.name, 1 << 60):
            one.reading = False
            return
        one.worker.queue.append(Read(one))
        self._wake(one.worker)

    def _wake(self, worker: Worker) -> None:
        if not worker.busy and not worker.dead:
            self._serve(worker)

    def _serve(self, worker: Worker) -> None:
        """Do the next thing, and come back when it is done."""
        queue = worker.queue
        while True:
            sends = Sends()
            reader = None
            if worker.looks:
                worker.looks = False
                cost = self._look_at_timers(worker, sends)
            elif worker.overtaking:
                cost = self.taking.marker(worker.overtaking.popleft(), sends)
            elif queue:
                item = queue.popleft()
                if type(item) is Rows:
                    cost = self.rows.process(item, sends)
                elif type(item) is Read:
                    reader = item.receiver
                    cost = self.rows.read(reader, sends)
                elif type(item) is Order:
                    cost = self.taking.order(item, sends)
                else:
                    cost = self.taking.marker(item, sends)  # type: ignore[arg-type]
            else:
                worker.busy = False
                return
            if cost or sends.here or sends.train or reader:
                worker.busy = True
                heapq.heappush(self._events, (self.now + cost, next(self._order), self._done, (worker, sends, reader)))
                return

    def _done(self, what: tuple[Worker, Sends, Instance | None]) -> None:
        worker, sends, reader = what
        if worker.dead:
            return
        worker.queue.extend(sends.here)
        if sends.train:
            self._depart(worker, sends)
        if reader is not None:
            self._read_on(reader)
        self._serve(worker)

    def _depart(self, worker: Worker, sends: Sends) -> None:
        """All that goes to others leaves in one train, and is there when its last byte is."""
        worker.line_free = max(worker.line_free, self.now) + sends.size / self.costs.bytes_per_second
        self._under_way += 1
        self.at(worker.line_free + self.costs.delay, self._arrive, sends.train)

    def _arrive(self, train: list[Item]) -> None:
        self._under_way -= 1
        overtakes = self.protocol.overtakes
        for item in train:
            worker = item.receiver.worker
            if worker.dead:
                continue
            if overtakes and type(item) is Marker:
                worker.overtaking.append(item)
            else:
                worker.queue.append(item)
            if not worker.busy:
                self._serve(worker)

    def _look(self, worker: Worker) -> None:
        self.at(self.now + LOOK_EVERY, self._look, worker)
        if not worker.dead and not self.recovery.down:
            worker.looks = True
            self._wake(worker)

    def _look_at_timers(self, worker: Worker, sends: Sends) -> float:
        cost = 0.0
        for one in worker.instances:
            cost += self.taking.late(one, sends)
            if one.half.due(self.now - one.begun):
                cost += self.taking.checkpoint(one, LOCAL)
        return cost

    def _next_round(self, _: None) -> None:
        self.at(self.now + (LOOK_EVERY if self._stopping is None else LOOK_EVERY / 10), self._next_round, None)
        if self.recovery.down:
            return
        if self._stopping is not None:
            self._stop()
            return
        number = self.central.next_round(self.now)
        if number is None:
            return
        self.tally.begins(number, self.now)
        if self.protocol.markers:
            first = self._orders_first or self.protocol.overtakes
            for one in self.sources():
                place = one.worker.queue.appendleft if first else one.worker.queue.append
                place(Order(one, number, self.central.plan))
            for worker in self.graph.workers:
                self._wake(worker)
        else:
            self.paused, self._stopping = True, number

    def _idle(self) -> bool:
        return not any(worker.busy or worker.queue for worker in self.graph.workers)

    def _stop(self) -> None:
        """A round of all at once, where nothing is under way any more."""
        if self._under_way or not self._idle() or any(worker.dead for worker in self.graph.workers):
            return
        number, self._stopping, self.paused = self._stopping, None, False
        assert number is not None
        for worker in self.graph.workers:
            cost = sum(self.taking.checkpoint(one, ROUND, number) for one in worker.instances)
            worker.busy = True
            self.at(self.now + cost, self._done, (worker, Sends(), None))
        self.start_sources()

    def _forget(self, _: None) -> None:
        self.at(self.now + FORGET_EVERY, self._forget, None)
        if not self.recovery.down:
            self.recovery.forget()

    def stop_everything(self) -> None:
        """A failure is noticed: nobody goes on, and nothing that is under way arrives."""
        going_on = (self._look, self._next_round, self._forget, self.recovery.fail)
        self._events = [event for event in self._events if event[2] in going_on]
        heapq.heapify(self._events)
        self._under_way, self._stopping, self.paused = 0, None, False
        for worker in self.graph.workers:
            worker.forget()
            worker.line_free = self.now

    def hand_over(self, items: Iterable[Rows]) -> None:
        """Rows that were under way come again, before anything new."""
        for item in items:
            item.receiver.worker.queue.append(item)
        for worker in self.graph.workers:
            self._wake(worker)

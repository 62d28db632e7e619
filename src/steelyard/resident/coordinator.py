"""The coordinator: who is there, what runs where, when all stop for a snapshot, and how it ends.

One thread, `run`, decides; a thread for each worker's connection only brings what workers say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from steelyard.core.dataflow import Dataflow
from steelyard.core.durable import Described
from steelyard.core.topology import Instance, Placement
from steelyard.core.weights import Weights
from steelyard.resident.chains import Chains
from steelyard.resident.control import message, packed
from steelyard.resident.delivery import Delivery, Results
from steelyard.resident.gang import Director, Gang, GenerationError, Said
from steelyard.resident.manifest import Manifest, channels_of, shape_of
from steelyard.resident.operator import ALONE, Attempt
from steelyard.resident.outcome import Outcome, Present
from steelyard.resident.pulse import Pulse
from steelyard.resident.quiet import QuietCheck
from steelyard.resident.recovery_line import RecoveryLine
from steelyard.resident.rescaling import Rescaling, Wish
from steelyard.resident.security import Credentials
from steelyard.resident.settings import Settings
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import Frame, Kind, WireError, batch_from
from steelyard.resident.worker import EVENTS, NOTE_BYTES, spoken

_POLL = 0.01
"""Seconds between two counts of a dataflow that comes to rest."""
_ROUND_POLL = 0.05
"""Seconds between two looks whether a round of checkpoints begins."""


class Coordinator(Director):
    """Watches over one generation of workers.

    Parameters
    ----------
    dataflow, placement
        What runs where.
    credentials
        The job's secret.
    settings
        How it is watched over.
    host
        The interface to listen at.
    attempt
        Which attempt this is, of which run of the job.
    outcome
        Where results go when their epoch is committed; shared by all generations of a job.
    delivery
        Hands them on instead, likewise.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        placement: Placement,
        credentials: Credentials,
        settings: Settings,
        host: str = "127.0.0.1",
        attempt: Attempt = ALONE,
        outcome: Outcome | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        self.attempt, self._delivery = attempt, delivery
        self._dataflow, self._placement, self.settings = dataflow, placement, settings
        self._hosted = set(placement.worker_of.items())
        """Which worker may tell of which instance."""
        self._wishes: list[Callable[[], None]] = []
        """What is to be done while rows come, one after the other."""
        self._cuts = 0
        self._sweep_at: int | None = None
        """The epoch from which on no commit needs a checkpoint of before the newest cut."""
        self._settled: dict[int, Mapping[str, Any]] = {}
        """By worker: what it said when all of its instances had gone over at the newest cut."""
        self.outcome = outcome or Outcome()
        self._store = SnapshotStore(settings.store) if settings.store else None
        self.present: dict[int, Present] = {}
        """By number: the workers that have come."""
        self._collecting = threading.Lock()
        self._pending: list[tuple[Instance, int, pa.RecordBatch]] = []
        """Results, each with the number of the checkpoint of its sink that it will be in."""
        self._protocol, self._stop_every = settings.live_protocol(), settings.stop_every
        self._line: RecoveryLine | None = None
        """Checkpoints that are taken while rows come."""
        self._moved = False
        """Whether the line has moved since the last commit."""
        sources = {source.name for source in dataflow.sources}
        self._working = set(placement.worker_of.values())
        """Workers with an instance that has not given its last row."""
        self._reading = {worker for one, worker in placement.worker_of.items() if one.operator in sources}
        """Workers with a source that is not at its end."""
        self._loops_closed = self._stopping = False
        self._rounds = 0
        self.metrics: dict[str, dict[str, Any]] = {}
        """The newest metrics of each instance, while it runs."""
        self.hosts: dict[int, dict[str, Any]] = {}
        """By worker: the newest of what it says of itself."""
        self.state_bytes: dict[str, int] = {}
        """By instance: how large its state is in the newest snapshot."""
        self._gang = Gang(
            placement.workers,
            credentials,
            host,
            attempt.generation,
            Pulse(settings.heartbeat, settings.silence),
            self._understood,
            packed("do", "beat", {"seconds": settings.heartbeat, "silence": settings.silence}),
        )
        self.address = self._gang.address

    @property
    def workers(self) -> int:
        """How many there are to be."""
        return self._placement.workers

    @property
    def ended(self) -> bool:
        """Whether every instance has given its last row."""
        return not self._working

    def run(self) -> Outcome:
        """Take the workers in, run the dataflow to its end, and dismiss them; GenerationError where that fails."""
        with self._attended():
            begun = time.monotonic()
            self._await("hello", self.settings.join)
            self._took("join", begun)
            begun = time.monotonic()
            self._deploy()
            self._took("deploy", begun)
            begun = time.monotonic()
            try:
                self._watch()
            except GenerationError:
                if self._line is not None:
                    self._line.give_up()
                raise
            self._line = None  # what comes of it is no line any more: all stop for the last snapshot
            self._snapshot()
            self._order("finish")
            self._took("run", begun)
        return self.outcome

    def _took(self, what: str, begun: float) -> None:
        self.outcome.seconds[what] = time.monotonic() - begun

    def _deploy(self) -> None:
        resumed = self._store.newest() if self._store else None
        if resumed is not None:
            self.outcome.epochs = resumed.epoch
            self.state_bytes = {name: file.size for name, file in resumed.files.items()}
        chosen: Any = self._protocol
        begun, fits = resumed, resumed is None or resumed.fits(self._dataflow)
        if resumed is not None and not fits:  # states are dealt out: a job starts so only where nothing was under way
            resumed = replace(resumed, sent={}, received={})
            begun = replace(resumed, files={})
        if chosen is not None:
            chains = Chains(self._dataflow, self._placement)
            self._line = RecoveryLine(chosen, chains, begun, self.outcome.checkpoints, self.attempt)
        if self._store is not None:
            self._store.sweep()
        self._order(
            "deploy",
            peers=self._gang.addresses,
            placement={str(instance): worker for instance, worker in self._placement.worker_of.items()},
            store=self.settings.store,
            attempt=str(self.attempt),
            protocol=None if chosen is None else {"name": chosen.name, "parameters": vars(chosen)},
            parallelism={one.name: one.parallelism for one in self._dataflow.operators},
            line=None if resumed is None else resumed.spoken(fits),
            weights=spoken(self.settings.weights),
        )
        self._order("start")

    def _watch(self) -> None:
        """Until every instance has given its last row, or somebody wants an end."""
        begun = time.monotonic()
        while self._working and not self._stopping:
            due = begun + self._stop_every if self._stop_every else None
            if self._wishes:
                self._wishes.pop(0)()
            elif self._dataflow.cyclic and not self._reading and not self._loops_closed:
                self._await_quiet()
                self._order("close_loops")
                self._loops_closed = True
            elif due is not None and time.monotonic() >= due and not self._crowded:
                self._stop_the_world()
                begun = time.monotonic()
            else:
                wait = max(due - time.monotonic(), _POLL) if due else _ROUND_POLL
                self._hear(min(self.settings.heartbeat, wait))
                self._look_at_line()
        if self._stopping:
            self._order("pause")
            self._await_quiet()

    def request_interval(self, seconds: float) -> None:
        """Take checkpoints so often from now on. Any thread may call it."""
        self._gang.say("wish", wish=lambda: self._set_interval(seconds))

    def _set_interval(self, seconds: float) -> None:
        self._stop_every = seconds if self._stop_every else None
        chosen: Any = self._protocol
        if chosen is not None and self._line is not None:
            self._protocol = changed = replace(chosen, interval=seconds)
            self._line.set_interval(changed)
            self._tell_all("interval", seconds=seconds)

    def request_rescale(self, wish: Wish) -> None:
        """Go over to other numbers of instances in place. Any thread may call it."""
        self._gang.say("wish", wish=lambda: self._rescale(wish))

    def request_weights(self, weights: Weights) -> None:
        """Deal rows out by these from now on. Any thread may call it."""
        self._gang.say("wish", wish=lambda: self._tell_all("weigh", weights=spoken(weights)))

    def _rescale(self, wish: Wish) -> None:
        """All workers prepare; then sources cut, and all others behind them (`switching.py`).

        Checkpoints begin anew at the cut: until there is a line behind it, all would go back to the one before it.
        """
        begun, cut = time.monotonic(), self._cuts + 1
        self._hosted = self._hosted | set(wish.placement.worker_of.items())
        where = {str(instance): worker for instance, worker in wish.placement.worker_of.items()}
        numbers = {one.name: one.parallelism for one in wish.dataflow.operators}
        before, self._dataflow, self._placement, self._cuts = self._dataflow, wish.dataflow, wish.placement, cut
        sources = {source.name for source in self._dataflow.sources}
        self._working = set(wish.placement.worker_of.values())
        self._reading = {worker for one, worker in wish.placement.worker_of.items() if one.operator in sources}
        chosen: Any = self._protocol
        if chosen is not None:
            chains = Chains(self._dataflow, self._placement)
            self._line = RecoveryLine(chosen, chains, None, self.outcome.checkpoints, self.attempt.behind(cut))
            self._moved = False
        self._settled = {}
        self._sweep_at = self.outcome.epochs + 2  # the two newest commits are then of behind the cut
        self._order("rewire", cut=cut, parallelism=numbers, placement=where)
        self._order("cut")
        while len(self._settled) < self.workers:
            self._hear(self.settings.heartbeat)
        gone = {str(one) for one in before.instances} - set(where)
        with self._collecting:  # whoever is gone takes no checkpoint any more: what it gave is of the next one of all
            self._pending = [(one, 0 if str(one) in gone else number, rows) for one, number, rows in self._pending]
        for known in (self.metrics, self.outcome.metrics, self.state_bytes):
            for name in gone & set(known):
                del known[name]
        parts, size = (sum(said[what] for said in self._settled.values()) for what in ("parts", "bytes"))
        wish.done(Rescaling.of(before, wish.dataflow, "", time.monotonic() - begun, parts, size))

    def _look_at_line(self) -> None:
        """Begin a round where it is time for one; commit the line where it has moved."""
        if self._line is None or self._crowded:
            return
        number = self._line.next_round()
        if number is not None:
            self._tell_all("begin_round", number=number, plan=self._line.plan)
        if self._moved and self._line.is_whole:
            self._moved = False
            self._commit(self._line)

    def _commit(self, line: RecoveryLine) -> None:
        """Make the line the point to go on from; what it has given is seen."""
        assert self._store is not None, "there is no interval without a store"
        numbers = line.numbers
        with self._collecting:
            held = self._pending
            ready = [one for one in held if one[1] <= numbers.get(str(one[0]), 0)]
            self._pending = [one for one in held if one[1] > numbers.get(str(one[0]), 0)]
        epoch = self.outcome.epochs + 1
        manifest = self._given_out(epoch, ready, line.committed)
        self._store.forget(line.forget(manifest))
        self._tell_all("keep", numbers=numbers)
        if self._sweep_at is not None and self.outcome.epochs >= self._sweep_at:
            self._sweep_at = None
            self._store.sweep(self.attempt.behind(self._cuts))

    def _tell_all(self, what: str, **details: Any) -> None:
        """An order that nobody answers."""
        for worker in range(self.workers):
            self._gang.order(worker, what, details)

    @property
    def _crowded(self) -> bool:
        """Whether results of so many epochs wait to be handed on that no other should follow now."""
        return self._delivery is not None and self._delivery.is_behind

    def _stop_the_world(self) -> None:
        """Stop all sources, let everything come to rest, take a snapshot, and go on."""
        begun = time.monotonic()
        self._order("pause")
        self._await_quiet()
        rest = time.monotonic()
        self._snapshot()
        durable = time.monotonic()
        self._order("resume")
        chains, whole = len(Chains(self._dataflow, self._placement).heads), time.monotonic() - begun
        self.outcome.checkpoints.all_stopped([*self.state_bytes.values()], chains, whole, durable - rest)

    def _await_quiet(self) -> None:
        check = QuietCheck()
        while True:
            answers = self._order("status")
            sent: dict[int, int] = {}
            done: dict[int, int] = {}
            for answer in answers.values():
                sent |= dict(answer.get("sent") or ())
                done |= dict(answer.get("done") or ())
            if check.round(sent, done):
                return
            self._hear(_POLL)

    def _snapshot(self) -> None:
        """States first, then the commit, which makes the epoch's results visible."""
        epoch = self.outcome.epochs + 1
        if any(getattr(one.logic, "flushes", False) for one in self._dataflow.operators):
            self._order("flush")
            self._await_quiet()
        answers = self._order("snapshot", epoch=epoch)
        with self._collecting:
            ready, self._pending = self._pending, []
        counts = {str(one): many for answer in answers.values() for one, many in answer.get("sent") or () if one >= 0}

        def at_rest(manifest: Manifest) -> Manifest:
            return replace(manifest, files=self._files(epoch, answers), sent=counts, received=counts)

        self._given_out(epoch, ready, at_rest)
        self._order("committed")

    def _given_out(
        self,
        epoch: int,
        ready: Sequence[tuple[Instance, int, pa.RecordBatch]],
        completed: Callable[[Manifest], Manifest],
    ) -> Manifest:
        """Commit an epoch that gave these results, with the states that `completed` adds, and hand the results on."""
        given: dict[str, list[pa.RecordBatch]] = {}
        for sink, _, batch in ready:
            given.setdefault(sink.operator, []).append(batch)
        kept: Described | None = None
        shape, channels = shape_of(self._dataflow), channels_of(self._dataflow)
        manifest = Manifest(epoch, str(self.attempt), shape, {}, self.settings.note, channels=channels)
        if self._store is not None:
            results = {}
            if self._delivery is not None:
                kept = self._kept(epoch, given, self._store) if given else None
                results = self._delivery.waiting | ({str(epoch): kept} if kept else {})
            manifest = completed(replace(manifest, results=results))
            self.state_bytes = {name: file.size for name, file in manifest.files.items()}
            self._store.commit(manifest)
        self.outcome.epochs = epoch
        if self._delivery is not None:
            self._delivery.put(epoch, given, kept)
        else:
            for name, batches in given.items():
                self.outcome.results.setdefault(name, []).extend(batches)
        return manifest

    def _kept(self, epoch: int, given: Results, store: SnapshotStore) -> Described:
        """The file of what an epoch gave."""
        schemas = self._dataflow.schemas
        whole = {sink: pa.Table.from_batches(batches, schemas[sink]) for sink, batches in given.items()}
        return store.write(epoch, "results", whole, self.attempt)

    def _files(self, epoch: int, answers: Mapping[int, Mapping[str, Any]]) -> dict[str, Described]:
        """By instance: the file of its state, as the worker that hosts it named it. Nobody names any other."""
        found: dict[str, Described] = {}
        for instance, worker in self._placement.worker_of.items():
            name, size, crc = (answers[worker].get("files") or {}).get(str(instance), ("", 0, 0))
            parts = PurePosixPath(name).parts
            if len(parts) != 2 or parts[0] != f"epoch-{epoch:08d}" or parts[1] == "..":  # a folder, a file
                raise GenerationError(f"worker {worker} wrote the state of {instance} to {name!r}, which cannot be")
            found[str(instance)] = Described(name, size, crc)
        return found

    def _order(self, what: str, **details: Any) -> dict[int, Mapping[str, Any]]:
        """Tell all workers to do something, and wait until all did; gives what they answered."""
        self._rounds += 1
        self._tell_all(what, round=self._rounds, **details)
        answers: dict[int, Mapping[str, Any]] = {}
        while len(answers) < self._placement.workers:
            said = self._hear(self.settings.heartbeat)
            if said is not None and said.event == "did" and said.what.get("round") == self._rounds:
                answers[said.worker] = said.what
        return answers

    def _hear(self, seconds: float) -> Said | None:
        """The next thing that a worker says, if it says one in time. GenerationError where one has failed."""
        said = self._gang.hear(seconds)
        if said is None:
            return None
        if said.event == "metrics":
            self.metrics.update(said.what["instances"])
            self.outcome.metrics.update(said.what["instances"])
            self.hosts[said.worker] = {key: said.what[key] for key in ("sent", "cores")}
            self.outcome.traffic[said.worker] = {key: said.what[key] for key in ("sent", "received")}
        elif said.event == "ended" and said.what["cut"] == self._cuts:
            if said.what["sources"]:
                self._reading.discard(said.worker)
            if said.what["all"]:
                self._working.discard(said.worker)
        elif said.event == "did" and said.what["what"] == "start":
            self._has_started(said)
        elif said.event == "hello":
            self.present[said.worker] = Present(said.what["host"], said.what["pid"], self.attempt.generation)
        elif said.event == "checkpoint" and self._line is not None and said.what["cut"] == self._cuts:
            try:
                self._moved = self._line.reported(said.what) or self._moved
            except WireError as error:
                raise GenerationError(f"worker {said.worker} was not understood: {error}") from error
        elif said.event == "settled" and said.what["cut"] == self._cuts:
            self._settled[said.worker] = said.what
        elif said.event == "wish":
            self._wishes.append(said.what["wish"])
        elif said.event == "stop":
            self._stopping = True
        return said

    def _understood(self, worker: int, frame: Frame) -> tuple[str, dict[str, Any]] | None:
        """What a worker says; WireError where it could not."""
        if frame.kind is Kind.RESULT:
            self._collect(worker, frame)
            return None
        what = message(frame, "event", EVENTS)
        hosted = {str(one) for one, where in self._hosted if where == worker}
        named = set(what.get("instances") or what.get("files") or ()) | ({what.get("instance", "")} - {""})
        if not named <= hosted:
            raise WireError(f"it told of {min(named - hosted)}, which it does not host")
        return what["event"], what

    def _collect(self, worker: int, frame: Frame) -> None:
        operators = self._dataflow.operators
        name = operators[frame.channel].name if frame.channel < len(operators) else None
        if name is None or (Instance(name, frame.number), worker) not in self._hosted:
            raise WireError(f"it sent results of instance {frame.number} of operator {frame.channel}, which it has not")
        batch = batch_from(frame.payload, self._dataflow.schemas[name])
        if len(frame.note) != NOTE_BYTES:
            raise WireError(f"results of {name} came without the number of their checkpoint")
        with self._collecting:
            self._pending.append((Instance(name, frame.number), int.from_bytes(frame.note, "big"), batch))

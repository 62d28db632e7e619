"""The coordinator: who is there, what runs where, when all stop for a snapshot, and how it ends.

One thread, `run`, decides; a thread for each worker's connection only brings what workers say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.dataflow import Dataflow, Instance, Placement
from steelyard.core.durable import Described
from steelyard.core.shown import Shown
from steelyard.resident.control import message, packed
from steelyard.resident.delivery import Deliver, Delivery, Results
from steelyard.resident.gang import Gang, GenerationError, Said
from steelyard.resident.manifest import Manifest, shape_of
from steelyard.resident.operator import ALONE, Attempt
from steelyard.resident.pulse import Pulse
from steelyard.resident.quiet import QuietCheck
from steelyard.resident.security import Credentials
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import Frame, Kind, WireError, batch_from
from steelyard.resident.worker import EVENTS

_POLL = 0.01
"""Seconds between two counts of a dataflow that comes to rest."""


@dataclass(frozen=True)
class Settings:
    """How a job is watched over.

    Parameters
    ----------
    store
        A folder for snapshots that the driver and all workers see; None keeps none.
    interval
        Seconds between two snapshots; None takes one only in the end.
    heartbeat
        Seconds between two reports of a worker, and between two signs of life on every connection.
    silence
        Seconds without a sign of life after which a connection counts as dead, and with it this generation.
    join
        Seconds that workers have to come.
    restarts
        How many generations may fail before the job does.
    note
        Kept in every commit, for the one who starts the job.
    deliver
        Called with each epoch that is committed and gave anything, and the batches of memory sinks; without it they are
        kept. They are part of the commit: where the driver ended before they were handed on, the next start does it.
    """

    store: str | None = None
    interval: float | None = None
    heartbeat: float = 0.5
    silence: float = 30.0
    join: float = 120.0
    restarts: int = 3
    note: str = ""
    deliver: Deliver | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and self.store is None:
            raise OptionError(f"interval={self.interval} needs a folder for the snapshots: give store= too")
        if self.deliver is not None and self.store is None:
            raise OptionError("deliver= hands results on when they are in a snapshot: give a folder for it, store= too")
        if self.interval is not None and self.interval <= 0:
            raise OptionError(f"interval must be above 0 seconds, got {self.interval}")
        if not 0 < self.heartbeat < self.silence:
            raise OptionError(
                f"heartbeat must be above 0 and below silence, got heartbeat={self.heartbeat}, silence={self.silence}"
            )
        if self.restarts < 0:
            raise OptionError(f"restarts must be 0 or more, got {self.restarts}")


@dataclass(repr=False)
class Outcome(Shown):
    """What a job gave."""

    results: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    """Batches of each memory sink."""
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last metrics of each instance."""
    traffic: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By worker: what went to and came from other workers."""
    epochs: int = 0
    """Snapshots that were committed, the last included."""
    restarts: int = 0
    """Generations that failed."""
    moves: int = 0
    """Generations that made room for one with another placement."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long it took to `join`, `deploy` and `run`."""

    def counted(self) -> dict[str, object]:
        """How it went, without what it gave."""
        return {"epochs": self.epochs, "restarts": self.restarts, "moves": self.moves, "seconds": self.seconds}

    def _facts(self) -> Mapping[str, object]:
        return {"sinks": len(self.results), "instances": len(self.metrics), **self.counted()}


class Present(NamedTuple):
    """A worker that has come: the process that it is."""

    host: str
    pid: int
    generation: int


class Coordinator:
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
        self._dataflow, self._placement, self._settings = dataflow, placement, settings
        self.outcome = outcome or Outcome()
        self._store = SnapshotStore(settings.store) if settings.store else None
        self.present: dict[int, Present] = {}
        """By number: the workers that have come."""
        self._collecting = threading.Lock()
        self._pending: dict[str, list[pa.RecordBatch]] = {}
        sources = {source.name for source in dataflow.sources}
        self._working = set(placement.worker_of.values())
        """Workers with an instance that has not given its last row."""
        self._reading = {worker for one, worker in placement.worker_of.items() if one.operator in sources}
        """Workers with a source that is not at its end."""
        self._loops_closed = False
        self._stopping = False
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

    def request_stop(self) -> None:
        """Stop reading, let what was read come to its end in a last snapshot, and end. Any thread may call it."""
        self._gang.say("stop")

    def abort(self, why: str) -> None:
        """Give this generation up. Any thread may call it."""
        self._gang.say("failed", why=why)

    def run(self) -> Outcome:
        """Take the workers in, run the dataflow to its end, and dismiss them; GenerationError where that fails."""
        begun = time.monotonic()
        why = "the coordinator was interrupted"
        try:
            self._await_all({"hello"}, self._settings.join)
            self._took("join", begun)
            begun = time.monotonic()
            self._deploy()
            self._took("deploy", begun)
            begun = time.monotonic()
            self._watch()
            self._snapshot()
            self._order("finish")
            self._took("run", begun)
            why = ""
            return self.outcome
        except GenerationError as error:
            why = str(error)
            raise
        finally:
            self._gang.dismiss(why)

    def _took(self, what: str, begun: float) -> None:
        self.outcome.seconds[what] = time.monotonic() - begun

    def _deploy(self) -> None:
        resumed = self._store.newest() if self._store else None
        if resumed is not None:
            self.outcome.epochs = resumed.epoch
            self.state_bytes = {name: file.size for name, file in resumed.files.items()}
        worker_of = {str(instance): worker for instance, worker in self._placement.worker_of.items()}
        self._order(
            "deploy",
            placement=worker_of,
            store=self._settings.store,
            attempt=str(self.attempt),
            files=None if resumed is None else dict(resumed.files),
        )
        self._order("start")

    def _watch(self) -> None:
        """Until every instance has given its last row, or somebody wants an end."""
        interval = self._settings.interval
        due = time.monotonic() + interval if interval else None
        while self._working and not self._stopping:
            if self._dataflow.cyclic and not self._reading and not self._loops_closed:
                self._await_quiet()
                self._order("close_loops")
                self._loops_closed = True
            elif due is not None and time.monotonic() >= due and interval and not self._crowded:
                self._stop_the_world(self._snapshot)
                due = time.monotonic() + interval
            else:
                wait = max(due - time.monotonic(), _POLL) if due else 1.0
                self._hear(min(self._settings.heartbeat, wait))
        if self._stopping:
            self._order("pause")
            self._await_quiet()

    @property
    def _crowded(self) -> bool:
        """Whether results of so many epochs wait to be handed on that no other should follow now."""
        return self._delivery is not None and self._delivery.is_behind

    def _stop_the_world(self, action: Callable[[], None]) -> None:
        """Stop all sources, let everything come to rest, act, and go on."""
        self._order("pause")
        self._await_quiet()
        action()
        self._order("resume")

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
        answers = self._order("snapshot", epoch=epoch)
        with self._collecting:
            given, self._pending = self._pending, {}
        kept: Described | None = None
        if self._store is not None:
            files, results = self._files(epoch, answers), {}
            self.state_bytes = {name: file.size for name, file in files.items()}
            if self._delivery is not None:
                kept = self._kept(epoch, given, self._store) if given else None
                results = self._delivery.waiting | ({str(epoch): kept} if kept else {})
            shape, note = shape_of(self._dataflow), self._settings.note
            self._store.commit(Manifest(epoch, str(self.attempt), shape, files, note, results=results))
        self.outcome.epochs = epoch
        if self._delivery is not None:
            self._delivery.put(epoch, given, kept)
        else:
            for sink, batches in given.items():
                self.outcome.results.setdefault(sink, []).extend(batches)
        self._order("committed", epoch=epoch)

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
        for worker in range(self.workers):
            self._gang.order(worker, what, {"round": self._rounds, **details})
        answers: dict[int, Mapping[str, Any]] = {}
        while len(answers) < self._placement.workers:
            said = self._hear(self._settings.heartbeat)
            if said is not None and said.event == "did" and said.what.get("round") == self._rounds:
                answers[said.worker] = said.what
        return answers

    def _await_all(self, events: set[str], seconds: float) -> None:
        """Wait until every worker has said one of these."""
        deadline = time.monotonic() + seconds
        heard: set[int] = set()
        while len(heard) < self._placement.workers:
            if time.monotonic() > deadline:
                missing = sorted(set(range(self._placement.workers)) - heard)
                raise GenerationError(f"workers {missing} did not come within {seconds:g} s: are there enough slots?")
            said = self._hear(self._settings.heartbeat)
            if said is not None and said.event in events:
                heard.add(said.worker)

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
        elif said.event == "ended":
            if said.what["sources"]:
                self._reading.discard(said.worker)
            if said.what["all"]:
                self._working.discard(said.worker)
        elif said.event == "hello":
            self.present[said.worker] = Present(said.what["host"], said.what["pid"], self.attempt.generation)
        elif said.event == "stop":
            self._stopping = True
        return said

    def _understood(self, worker: int, frame: Frame) -> tuple[str, dict[str, Any]] | None:
        """What a worker says; WireError where it could not."""
        if frame.kind is Kind.RESULT:
            self._collect(worker, frame)
            return None
        what = message(frame, "event", EVENTS)
        hosted = {str(one) for one, where in self._placement.worker_of.items() if where == worker}
        named = set(what["instances"]) if what["event"] == "metrics" else {what.get("instance", "")} - {""}
        if not named <= hosted:
            raise WireError(f"it told of {min(named - hosted)}, which it does not host")
        return what["event"], what

    def _collect(self, worker: int, frame: Frame) -> None:
        operators = self._dataflow.operators
        name = operators[frame.channel].name if frame.channel < len(operators) else None
        if name is None or self._placement.worker_of.get(Instance(name, frame.number)) != worker:
            raise WireError(f"it sent results of instance {frame.number} of operator {frame.channel}, which it has not")
        batch = batch_from(frame.payload, self._dataflow.schemas[name])
        with self._collecting:
            self._pending.setdefault(name, []).append(batch)

    def close(self) -> None:
        """Let go of all sockets; called when the workers are gone, or will never come."""
        self._gang.close()

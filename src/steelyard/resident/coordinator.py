"""The coordinator: who is there, what runs where, when all stop for a snapshot, and how it ends.

One thread, `run`, decides; a thread for each worker's connection only brings what workers say.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from steelyard.core import OptionError, SteelyardError
from steelyard.core.dataflow import Dataflow, Placement
from steelyard.resident.connection import Connection
from steelyard.resident.listener import Listener
from steelyard.resident.manifest import Manifest, shape_of
from steelyard.resident.operator import ALONE, Attempt
from steelyard.resident.quiet import QuietCheck
from steelyard.resident.security import Credentials, Identity
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import Kind, WireError, batch_from
from steelyard.resident.worker import TO_COORDINATOR

log = logging.getLogger(__name__)

_POLL = 0.01
"""Seconds between two counts of a dataflow that comes to rest."""


class GenerationError(SteelyardError):
    """A generation of workers that could not finish; the next one goes on from the last snapshot.

    Unless the failure is `final`: then the next would fail as this one did.
    """

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


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
        Seconds between two reports of a worker.
    silence
        Seconds without a report after which a worker counts as dead.
    join
        Seconds that workers have to come.
    restarts
        How many generations may fail before the job does.
    """

    store: str | None = None
    interval: float | None = None
    heartbeat: float = 0.5
    silence: float = 30.0
    join: float = 120.0
    restarts: int = 3

    def __post_init__(self) -> None:
        if self.interval is not None and self.store is None:
            raise OptionError(f"interval={self.interval} needs a folder for the snapshots: give store= too")
        if self.interval is not None and self.interval <= 0:
            raise OptionError(f"interval must be above 0 seconds, got {self.interval}")
        if self.restarts < 0:
            raise OptionError(f"restarts must be 0 or more, got {self.restarts}")


@dataclass
class Outcome:
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


class Present(NamedTuple):
    """A worker that has come: the process that it is."""

    host: str
    pid: int
    generation: int


@dataclass(frozen=True)
class _Said:
    worker: int
    event: str
    what: Mapping[str, Any]


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
    ) -> None:
        self._attempt = attempt
        self._dataflow, self._placement, self._settings = dataflow, placement, settings
        self.outcome = outcome or Outcome()
        self._store = SnapshotStore(settings.store) if settings.store else None
        self._said: queue.Queue[_Said] = queue.Queue()
        self._workers: dict[int, Connection] = {}
        self._joining = threading.Lock()
        self._dismissed = False
        self.present: dict[int, Present] = {}
        """By number: the workers that have come."""
        self._heard: dict[int, float] = {}
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
        self._listener = Listener(host, credentials, attempt.generation, self._welcome)
        self.address = self._listener.address

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
        self._said.put(_Said(-1, "stop", {}))

    def abort(self, why: str) -> None:
        """Give this generation up. Any thread may call it."""
        self._said.put(_Said(-1, "failed", {"why": why}))

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
            self._dismiss(why)

    def _took(self, what: str, begun: float) -> None:
        self.outcome.seconds[what] = time.monotonic() - begun

    def _deploy(self) -> None:
        resumed = self._store.newest() if self._store else None
        if resumed is not None:
            self.outcome.epochs = resumed.epoch
        worker_of = {str(instance): worker for instance, worker in self._placement.worker_of.items()}
        self._order(
            "deploy",
            placement=worker_of,
            store=self._settings.store,
            attempt=str(self._attempt),
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
            elif due is not None and time.monotonic() >= due and interval:
                self._stop_the_world(self._snapshot)
                due = time.monotonic() + interval
            else:
                self._hear(min(self._settings.heartbeat, max(due - time.monotonic(), 0.0) if due else 1.0))
        if self._stopping:
            self._order("pause")
            self._await_quiet()

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
                sent |= dict(answer["sent"])
                done |= dict(answer["done"])
            if check.round(sent, done):
                return
            self._hear(_POLL)

    def _snapshot(self) -> None:
        """States first, then the commit, which makes the epoch's results visible."""
        epoch = self.outcome.epochs + 1
        answers = self._order("snapshot", epoch=epoch)
        if self._store is not None:
            files = {one: file for answer in answers.values() for one, file in answer["files"].items()}
            self._store.commit(Manifest(epoch, str(self._attempt), shape_of(self._dataflow), files))
        self.outcome.epochs = epoch
        for sink, batches in self._pending.items():
            self.outcome.results.setdefault(sink, []).extend(batches)
        self._pending = {}
        self._order("committed", epoch=epoch)

    def _order(self, what: str, **details: Any) -> dict[int, Mapping[str, Any]]:
        """Tell all workers to do something, and wait until all did; gives what they answered."""
        self._rounds += 1
        order = json.dumps({"do": what, "round": self._rounds, **details}).encode()
        for number, worker in self._workers.items():
            try:
                worker.send(Kind.CONTROL, payload=order)
            except OSError as error:
                raise GenerationError(f"worker {number} is gone: {error}") from error
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

    def _hear(self, seconds: float) -> _Said | None:
        """The next thing that a worker says, if it says one in time. GenerationError where one has failed."""
        self._notice_silence()
        try:
            said = self._said.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None
        self._heard[said.worker] = time.monotonic()
        if said.event == "failed":
            raise GenerationError(said.what["why"], final=said.what.get("final", False))
        if said.event == "metrics":
            self.metrics.update(said.what["instances"])
            self.outcome.metrics.update(said.what["instances"])
            self.outcome.traffic[said.worker] = {key: said.what[key] for key in ("sent", "received")}
        elif said.event == "ended":
            if said.what["sources"]:
                self._reading.discard(said.worker)
            if said.what["all"]:
                self._working.discard(said.worker)
        elif said.event == "hello":
            self.present[said.worker] = Present(said.what["host"], said.what["pid"], self._attempt.generation)
        elif said.event == "stop":
            self._stopping = True
        return said

    def _notice_silence(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            silent = now - self._heard.get(worker, now)
            if silent > self._settings.silence:
                raise GenerationError(f"worker {worker} has been silent for {silent:.1f} s")

    def _welcome(self, identity: Identity, connection: Connection) -> None:
        """A worker has come; stays with it until it goes."""
        number = identity.worker
        with self._joining:
            known = identity.purpose == TO_COORDINATOR and 0 <= number < self._placement.workers
            if self._dismissed or not known or number in self._workers:
                log.warning("the coordinator refused %s, which is not awaited", identity)
                connection.close()
                return
            self._workers[number] = connection
        beat = json.dumps({"do": "beat", "seconds": self._settings.heartbeat}).encode()
        try:
            connection.send(Kind.CONTROL, payload=beat)  # now: others may take long to come
            while True:
                frame = connection.receive()
                self._heard[number] = time.monotonic()
                if frame.kind is Kind.RESULT:
                    self._collect(frame.channel, frame.payload)
                else:
                    what = json.loads(bytes(frame.payload))
                    self._said.put(_Said(number, what["event"], what))
        except (OSError, WireError, ValueError, KeyError, TypeError) as error:
            self._said.put(_Said(number, "failed", {"why": f"worker {number} is gone: {error}"}))
        finally:
            connection.close()

    def _collect(self, operator: int, payload: Any) -> None:
        if operator >= len(self._dataflow.operators):
            raise WireError(f"results came of operator {operator}, and there are {len(self._dataflow.operators)}")
        name = self._dataflow.operators[operator].name
        batch = batch_from(payload, self._dataflow.schemas[name])
        with self._joining:
            self._pending.setdefault(name, []).append(batch)

    def _dismiss(self, why: str) -> None:
        order = json.dumps({"do": "stop", **({"why": why} if why else {})}).encode()
        with self._joining:
            self._dismissed = True
        for worker in list(self._workers.values()):
            with contextlib.suppress(OSError):
                worker.send(Kind.CONTROL, payload=order)
        self._listener.close()

    def close(self) -> None:
        """Let go of all sockets; called when the workers are gone, or will never come."""
        with self._joining:
            self._dismissed = True
        self._listener.close()
        for worker in list(self._workers.values()):
            worker.close()

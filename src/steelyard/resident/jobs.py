"""A job: generations of workers, one after the other, until the dataflow has come to its end."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.dataflow import Dataflow, Placement
from steelyard.core.durable import told
from steelyard.core.shown import Shown
from steelyard.resident.coordinator import Coordinator, Outcome, Present, Settings
from steelyard.resident.gang import GenerationError
from steelyard.resident.idle import tell_idle_edges
from steelyard.resident.manifest import difference, shape_of
from steelyard.resident.operator import Attempt
from steelyard.resident.peers import Address, WorkerError
from steelyard.resident.security import Credentials, Tls
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.worker import Worker

log = logging.getLogger(__name__)

START_SECONDS = 60.0
"""How long processes have to tell their addresses."""
LEAVE_SECONDS = 5.0
"""How long processes have to end by themselves before they are ended."""


class Launcher(Protocol):
    """Starts workers somewhere: in threads, in processes, in the tasks of a Spark job."""

    host: str
    """The interface that the coordinator listens at."""

    def launch(self, dataflow: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """Start all workers of a generation; what keeps them from starting is told to `coordinator.abort`."""
        ...

    def gather(self, failed: bool = False) -> None:
        """Wait until all workers of the last generation are gone; `failed` where some may hang."""
        ...

    def require(self, workers: int) -> None:
        """OptionError where there is no room for so many workers."""
        ...


class JobError(GenerationError):
    """A job whose generations failed too often."""


class Job:
    """A dataflow that runs to its end; a generation that fails is followed by the next, from the last snapshot.

    Parameters
    ----------
    dataflow, placement
        What runs where.
    launcher
        Starts workers.
    settings
        Snapshots, heartbeats, restarts.
    credentials
        The job's secret; one is made where none is given.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        placement: Placement,
        launcher: Launcher,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        _require_all_placed(dataflow, placement)
        tell_idle_edges(dataflow)
        self._dataflow, self._placement, self._launcher = dataflow, placement, launcher
        self._settings = settings or Settings()
        self._credentials = credentials or Credentials.new()
        self._coordinator: Coordinator | None = None
        self.outcome = Outcome()
        """What it gave so far."""
        self._stopped = False
        self._wanted: Placement | None = None
        self._changing = threading.Lock()

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The newest metrics of each instance."""
        return dict(self._coordinator.metrics) if self._coordinator else {}

    @property
    def workers(self) -> dict[int, Present]:
        """By number: the workers of the newest generation that have come, each with its machine and process."""
        return dict(self._coordinator.present) if self._coordinator else {}

    def stop(self) -> None:
        """Stop reading, let what was read come to its end, and end. Any thread may call it while `run` runs."""
        with self._changing:
            self._stopped = True
            if self._coordinator is not None:
                self._coordinator.request_stop()

    def move(self, placement: Placement) -> None:
        """Go on with another placement, also of another number of workers. Any thread may call it while `run` runs.

        Sources stop, a snapshot is taken, and the next generation of workers goes on from it. A dataflow that comes to
        its end first is not moved any more.

        Raises
        ------
        OptionError
            Without a store there is no snapshot to go on from; and an instance must have a place.
        """
        if self._settings.store is None:
            raise OptionError("to move instances takes a snapshot: give a folder for it, Settings(store=...)")
        _require_all_placed(self._dataflow, placement)
        self._launcher.require(placement.workers)
        with self._changing:
            self._wanted = placement
            if self._coordinator is not None:
                self._coordinator.request_stop()

    def run(self) -> Outcome:
        """Run until the end.

        Raises
        ------
        JobError
            After `settings.restarts` generations have failed beside the first; it says why the last one did. At once
            where rows were bad, and none is to be dropped.
        OptionError
            Where the store has a snapshot of another dataflow.
        StateError
            Where the newest snapshot is damaged.
        """
        self._require_same_dataflow()
        outcome, run = self.outcome, secrets.token_hex(4)
        for generation in itertools.count():
            failed = True
            try:
                self._generation(Attempt(run, generation), outcome)
                failed = False
                if not self._moved():
                    return outcome
                outcome.moves += 1
            except GenerationError as error:
                outcome.restarts += 1
                self._diagnose(error, generation, outcome)
            finally:
                self._launcher.gather(failed)
                if self._coordinator is not None:
                    self._coordinator.close()
        raise AssertionError("generations have no end of their own")

    def _moved(self) -> bool:
        """Whether a generation that has ended is to be followed by one with another placement."""
        with self._changing:
            wanted, self._wanted = self._wanted, None
            if wanted is None or self._stopped or self._coordinator is None or self._coordinator.ended:
                return False
            self._placement = wanted
            return True

    def _require_same_dataflow(self) -> None:
        if self._settings.store is None:
            return
        store = SnapshotStore(self._settings.store)
        found = store.checked()
        if found is None:
            return
        what = difference(found.shape, shape_of(self._dataflow))
        if what is not None:
            raise OptionError(
                f"store {self._settings.store} has a snapshot (epoch {found.epoch}) of another dataflow: {what}; "
                "run the dataflow that it is of, or give another store="
            )
        store.make()

    def _generation(self, attempt: Attempt, outcome: Outcome) -> None:
        coordinator = Coordinator(
            self._dataflow,
            self._placement,
            self._credentials,
            self._settings,
            self._launcher.host,
            attempt,
            outcome,
        )
        with self._changing:
            self._coordinator = coordinator
            if self._stopped or self._wanted is not None:
                coordinator.request_stop()
        self._launcher.launch(self._dataflow, self._credentials, attempt.generation, coordinator)
        coordinator.run()

    def _diagnose(self, error: GenerationError, generation: int, outcome: Outcome) -> None:
        """Decide whether and where to go on; JobError where there is no way to."""
        if error.final:
            raise told(error) or JobError(str(error)) from error
        _require_replay(self._dataflow, error)
        if outcome.restarts > self._settings.restarts:
            raise JobError(f"{error} (generation {generation}, the last of {generation + 1})") from error
        if not self._settings.store:  # everything comes again
            outcome.epochs = 0
            outcome.results.clear()
        resume = f"the snapshot of epoch {outcome.epochs}" if outcome.epochs else "the beginning"
        log.warning("generation %d failed: %s; the next goes on from %s", generation, error, resume)


def _require_all_placed(dataflow: Dataflow, placement: Placement) -> None:
    known, placed = set(dataflow.instances), set(placement.worker_of)
    if known - placed:
        raise OptionError(f"the placement has no worker for {sorted(known - placed)[0]}: place every instance")
    if placed - known:
        raise OptionError(f"the placement has {sorted(placed - known)[0]}, which the dataflow has not: leave it out")


def _require_replay(dataflow: Dataflow, error: GenerationError) -> None:
    for source in dataflow.sources:
        reader = getattr(source.logic, "reader", None)
        if reader is not None and not reader.replayable:
            raise JobError(f"{error}; source {source.name!r} cannot be read again, so there is no restart") from error


class ThreadLauncher:
    """Workers as threads of this process: for tests, and for dataflows that are mostly Arrow's own work.

    `kind` is what a worker is: something that is made as a `Worker` is.
    """

    host = "127.0.0.1"

    def __init__(self, kind: Any = Worker) -> None:
        self._kind = kind
        self.workers: list[Any] = []
        self._threads: list[threading.Thread] = []

    def launch(self, dataflow: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """One thread per worker."""
        count = coordinator.workers
        self.workers = [self._kind(number, dataflow, credentials, self.host, generation) for number in range(count)]
        peers = self.among([worker.address for worker in self.workers], generation)
        self._threads = [
            threading.Thread(target=_served, args=(worker, coordinator.address, peers), daemon=True)
            for worker in self.workers
        ]
        for thread in self._threads:
            thread.start()

    def among(self, peers: list[Address], generation: int) -> list[Address]:
        """Where workers reach each other."""
        return peers

    def gather(self, failed: bool = False) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            thread.join()

    def require(self, workers: int) -> None:
        """There is always room."""


def _served(worker: Any, coordinator: Address, peers: Sequence[Address]) -> None:
    try:
        worker.run(coordinator, peers)
    except WorkerError as error:
        log.info("worker %d ended: %s", worker.number, error)


class ProcessLauncher:
    """Workers as processes, forked, so that a dataflow with functions of any kind reaches them."""

    host = "127.0.0.1"

    def __init__(self, kind: Any = Worker) -> None:
        self._kind = kind
        self.processes: list[Any] = []

    def launch(self, dataflow: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """One process a worker; they tell each other their addresses through pipes."""
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(coordinator.workers)]
        self.processes = [
            context.Process(
                target=_forked,
                args=(self._kind, number, dataflow, credentials, generation, coordinator.address, pipe),
                daemon=True,
            )
            for number, (_, pipe) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()  # else a child that dies would not be noticed
        peers = [_address(number, ours) for number, (ours, _) in enumerate(pipes)]
        for ours, _ in pipes:
            ours.send_bytes(json.dumps(peers).encode())

    def gather(self, failed: bool = False) -> None:
        """Wait for the processes; one that does not end is ended."""
        for process in self.processes:
            process.join(LEAVE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()

    def require(self, workers: int) -> None:
        """There is always room."""


def _address(number: int, pipe: Any) -> Address:
    try:
        if not pipe.poll(START_SECONDS):
            raise GenerationError(f"worker {number} did not start within {START_SECONDS:g} s")
        host, _, port = pipe.recv_bytes().decode().rpartition(" ")
    except (EOFError, OSError) as error:
        raise GenerationError(f"worker {number} died before it had an address: {error}") from error
    return host, int(port)


def _forked(
    kind: Any, number: int, dataflow: Any, credentials: Credentials, generation: int, coordinator: Address, pipe: Any
) -> None:
    worker = kind(number, dataflow, credentials, ProcessLauncher.host, generation)
    pipe.send_bytes(f"{worker.address[0]} {worker.address[1]}".encode())
    peers = [(host, port) for host, port in json.loads(pipe.recv_bytes())]
    _served(worker, coordinator, peers)


def run(
    dataflow: Dataflow,
    *,
    workers: int = 2,
    processes: bool = False,
    placement: Placement | None = None,
    settings: Settings | None = None,
    tls: Tls | None = None,
) -> Results:
    """Run a dataflow on this machine, without Spark.

    Parameters
    ----------
    dataflow
        What to run.
    workers
        How many; instance i of every operator is on worker i mod `workers`, unless there is a `placement`.
    processes
        Whether workers are processes, rather than threads of this one.
    placement
        Which worker hosts which instance.
    settings
        Snapshots, heartbeats, restarts.
    tls
        Certificates, for connections that are encrypted.

    Examples
    --------
    >>> from steelyard.resident import Flow, Memory, Rows, count
    >>> flow = Flow("words")
    >>> words = flow.source(Rows(pa.table({"word": ["a", "b", "a"]})))
    >>> _ = words.key_by("word").aggregate(n=count(), emit="end", parallelism=2).sink(Memory(), name="out")
    >>> run(flow.dataflow()).table("out").sort_by("word").to_pylist()
    [{'word': 'a', 'n': 2}, {'word': 'b', 'n': 1}]
    """
    where = placement or Placement.spread(dataflow, workers)
    launcher: Launcher = ProcessLauncher() if processes else ThreadLauncher()
    return Results(dataflow, Job(dataflow, where, launcher, settings, Credentials.new(tls)).run())


class Results(Shown):
    """What a job gave, by sink.

    Parameters
    ----------
    dataflow
        What ran.
    outcome
        How it went: metrics, traffic, epochs, restarts.
    """

    def __init__(self, dataflow: Dataflow, outcome: Outcome) -> None:
        self._dataflow, self.outcome = dataflow, outcome

    def _facts(self) -> Mapping[str, object]:
        kept = {name: f"{sum(one.num_rows for one in got):,} rows" for name, got in self.outcome.results.items()}
        return {"dataflow": self._dataflow.name, "sinks": kept, **self.outcome.counted()}

    def table(self, sink: str) -> pa.Table:
        """The rows that a memory sink got."""
        if sink not in {operator.name for operator in self._dataflow.sinks}:
            raise OptionError.unknown("sink", sink, (operator.name for operator in self._dataflow.sinks))
        return pa.Table.from_batches(self.outcome.results.get(sink, []), self._dataflow.schemas[sink])

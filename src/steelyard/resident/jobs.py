"""A job: generations of workers, one after the other, until the dataflow has come to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from steelyard.core import Observation, OptionError
from steelyard.core.checkpointing import CheckpointObservation
from steelyard.core.dataflow import Dataflow
from steelyard.core.shown import Shown
from steelyard.core.topology import Placement
from steelyard.resident.changing import ChangingJob
from steelyard.resident.coordinator import Coordinator
from steelyard.resident.dealing import others_told, require_dealt
from steelyard.resident.delivery import Delivery, undelivered
from steelyard.resident.gang import GenerationError
from steelyard.resident.generations import JobError
from steelyard.resident.idle import tell_idle_edges
from steelyard.resident.launchers import Launcher, ProcessLauncher, ThreadLauncher
from steelyard.resident.manifest import difference, shape_of
from steelyard.resident.observed import Looks, shown_of
from steelyard.resident.operator import Attempt
from steelyard.resident.outcome import Outcome, Present
from steelyard.resident.security import Credentials, Tls
from steelyard.resident.settings import Settings
from steelyard.resident.snapshot import SnapshotStore


class Job(ChangingJob):
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

    what: ClassVar[str] = "a resident job"

    def __init__(
        self,
        dataflow: Dataflow,
        placement: Placement,
        launcher: Launcher,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        live = (settings or Settings()).live_protocol()
        if live is not None:
            live.require(dataflow.cyclic)
        super().__init__(dataflow, placement, launcher, settings, credentials)
        tell_idle_edges(dataflow)
        self._first = Attempt.first()
        self._delivery: Delivery | None = None
        self._begun, self._ended = time.monotonic(), threading.Event()
        self._failed_at: list[float] = []
        """When generations failed."""

    @property
    def dataflow(self) -> Dataflow:
        """What runs, with the numbers of instances that it has now."""
        return self._dataflow

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The newest metrics of each instance."""
        return dict(self._driver.metrics) if self._driver else {}

    @property
    def state_bytes(self) -> int:
        """Bytes of all states in the newest commit."""
        return sum(self._driver.state_bytes.values()) if self._driver else 0

    @property
    def delivered(self) -> int:
        """The newest epoch that is committed, and handed on where that is wanted."""
        return self._delivery.delivered if self._delivery is not None else self.outcome.epochs

    @property
    def workers(self) -> dict[int, Present]:
        """By number: the workers of the newest generation that have come, each with its machine and process."""
        return dict(self._driver.present) if self._driver else {}

    @property
    def now(self) -> float:
        """Seconds since it was made, or since `run` was called."""
        return time.monotonic() - self._begun

    @property
    def ended(self) -> bool:
        """Whether `run` has come to its end."""
        return self._ended.is_set()

    def advance(self, seconds: float) -> None:
        """Wait for so many seconds, or until the end. For a thread beside the one of `run`."""
        self._ended.wait(seconds)

    @property
    def shows(self) -> frozenset[str]:
        """What comes to sources where all of their readers tell it, states, checkpoints and weights where any are."""
        shown = shown_of(self._dataflow, bool(self._settings.store))
        return shown | ({"checkpoints"} if self._settings.interval else set())

    def observe(self) -> Observation:
        """What instances did since the last look, as far as workers have said."""
        with self._changing:
            looks, driver, (dataflow, placement) = self._looks, self._driver, self._next
            if dataflow is not self._dataflow:  # of instances that are not there yet there is nothing to see
                placement = self._placement
        if driver is None:
            return looks.observed({}, placement, self.now, weights=self._settings.weights)
        seen = looks.observed(
            dict(driver.metrics),
            placement,
            self.now,
            driver.attempt.generation,
            driver.hosts,
            driver.state_bytes,
            self._settings.weights,
        )
        return replace(seen, checkpoints=self._checkpoints())

    def _checkpoints(self) -> CheckpointObservation | None:
        settings, totals, failed = self._settings, self.outcome.checkpoints, tuple(self._failed_at)
        if settings.interval is None:
            return None
        before, named = self._paid_before, settings.protocol
        many = max(totals.moments - before.moments, 1)
        return CheckpointObservation(
            settings.interval,
            (totals.stood - before.stood) / many,
            3600.0 * len(failed) / self.now,
            named if isinstance(named, str) else named.name,
            (totals.seconds - before.seconds) / many,
            self.state_bytes,
            failed,
        )

    def whole(self) -> Observation:
        """What its newest workers did since they began, whoever has looked meanwhile."""
        driver = self._driver
        metrics = {**self.outcome.metrics, **self.metrics}
        longest = max((float(one["seconds"]) for one in metrics.values()), default=0.0)
        return Looks(self._dataflow).observed(
            metrics, self._placement, longest, hosts=driver.hosts if driver is not None else {}
        )

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
        self._begun = time.monotonic()
        self._looks, self._undeliverable, self._failed_at = Looks(self._dataflow), False, []
        self._ended.clear()
        complete = False
        try:
            self._require_same_dataflow()
            self._first = Attempt.first(self._store_name())
            if self._settings.deliver is not None and self._settings.store is not None:
                store = SnapshotStore(self._settings.store)
                self._delivery = Delivery(self._settings.deliver, store, failed=self._give_up)
            self._generations()
            if self._settings.store is not None:
                SnapshotStore(self._settings.store).sweep()
            complete = True
        finally:
            try:
                if self._delivery is not None:
                    self._delivery.close(complete)
            finally:
                self._ended.set()
        return self.outcome

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
        if not found.fits(self._dataflow) and not found.is_at_rest:
            raise OptionError(
                f"store {self._settings.store} is of a job that ended while rows were under way (epoch {found.epoch}), "
                f"and who gets them is not the same any more{others_told(self._dataflow, found.files)}: start the "
                "dataflow as it was and stop it, then the new one"
            )
        require_dealt(self._dataflow, store, found.files)
        if self._settings.deliver is None and undelivered(store):
            raise OptionError(
                f"store {self._settings.store} has results of epoch {min(undelivered(store))} that did not come to "
                "their sink: go on with that sink first, or give another store="
            )

    def _store_name(self) -> str:
        if self._settings.store is None:
            return ""
        try:
            return SnapshotStore(self._settings.store).make()
        except OSError as error:
            what = f"{type(error).__name__}: {error}"
            raise OptionError(f"store {self._settings.store} cannot be written: {what}") from error

    def _coordinator(self, number: int) -> Coordinator:
        return Coordinator(
            self._dataflow,
            self._placement,
            self._credentials,
            self._settings,
            self._launcher.host,
            self._first._replace(generation=number),
            self.outcome,
            self._delivery,
        )

    def _may_fail(self, error: GenerationError) -> bool:
        outcome = self.outcome
        outcome.restarts += 1
        self._failed_at.append(self.now)
        _require_replay(self._dataflow, error)
        if outcome.restarts > self._settings.restarts:
            return False
        if not self._settings.store:  # everything comes again
            outcome.epochs = 0
            outcome.results.clear()
        return True

    def _resumes_from(self) -> str:
        epochs = self.outcome.epochs
        return f"the snapshot of epoch {epochs}" if epochs else "the beginning"


def _require_replay(dataflow: Dataflow, error: GenerationError) -> None:
    for source in dataflow.sources:
        reader = getattr(source.logic, "reader", None)
        if reader is not None and not reader.replayable:
            raise JobError(f"{error}; source {source.name!r} cannot be read again, so there is no restart") from error


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
    >>> from steelyard import count
    >>> from steelyard.resident import Flow, Memory, Rows
    >>> flow = Flow("words")
    >>> words = flow.source(Rows(pa.table({"word": ["a", "b", "a"]})))
    >>> _ = words.key_by("word").aggregate(n=count(), emit="end", parallelism=2).sink(Memory(), name="out")
    >>> run(flow.dataflow()).table("out").sort_by("word").to_pylist()
    [{'word': 'a', 'n': 2}, {'word': 'b', 'n': 1}]
    """
    where = placement or Placement.spread(dataflow, workers)
    launcher: Launcher = ProcessLauncher() if processes else ThreadLauncher()
    job = Job(dataflow, where, launcher, settings, Credentials.new(tls))
    return Results(dataflow, job.run(), job.whole())


class Results(Shown):
    """What a job gave, by sink.

    Parameters
    ----------
    dataflow
        What ran.
    outcome
        How it went: metrics, traffic, epochs, restarts.
    whole
        What its workers did, where that is known.
    """

    def __init__(self, dataflow: Dataflow, outcome: Outcome, whole: Observation | None = None) -> None:
        self.dataflow, self.outcome, self.whole = dataflow, outcome, whole

    def _facts(self) -> Mapping[str, object]:
        kept = {name: f"{sum(one.num_rows for one in got):,} rows" for name, got in self.outcome.results.items()}
        return {"dataflow": self.dataflow.name, "sinks": kept, **self.outcome.counted()}

    def table(self, sink: str) -> pa.Table:
        """The rows that a memory sink got."""
        if sink not in {operator.name for operator in self.dataflow.sinks}:
            raise OptionError.unknown("sink", sink, (operator.name for operator in self.dataflow.sinks))
        return pa.Table.from_batches(self.outcome.results.get(sink, []), self.dataflow.schemas[sink])

"""A run of batches: generations of workers, one after the other, until the source has come to its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pyarrow as pa

from steelyard.core import OptionError, ScalingPolicy, tell_no_effect
from steelyard.resident.gang import GenerationError
from steelyard.resident.groups.central import CentralScheduler
from steelyard.resident.groups.outcome import GroupOutcome
from steelyard.resident.groups.program import Batches, BatchProgram, Scheduling
from steelyard.resident.groups.worker import GroupWorker
from steelyard.resident.jobs import JobError, Launcher, ProcessLauncher, ThreadLauncher
from steelyard.resident.security import Credentials, Tls
from steelyard.scaling.registry import elasticity

log = logging.getLogger(__name__)


class GroupJob:
    """Batches that are scheduled ahead; workers that fail are followed by others, from the last snapshot.

    Parameters
    ----------
    program, scheduling
        What runs, and how it is scheduled.
    workers
        How many.
    launcher
        Starts workers of the kind `GroupWorker`.
    elastic
        Chooses numbers of tasks: a name such as `"zones"`, or a policy; None leaves them.
    commit
        Called with each batch and its results, in order, each once; without it they are kept in the outcome.
    credentials
        The run's secret; one is made where none is given.
    """

    def __init__(
        self,
        program: BatchProgram,
        scheduling: Scheduling,
        workers: int,
        launcher: Launcher,
        elastic: str | ScalingPolicy | None = None,
        commit: Callable[[int, pa.Table], None] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        if workers < 1:
            raise OptionError(f"workers must be 1 or more, got {workers}")
        self._batches, self._workers, self._launcher = Batches(program, scheduling), workers, launcher
        self._policy = None if elastic is None else elasticity(elastic)
        _tell_idle(self._batches, workers, self._policy)
        self._commit = commit
        self._credentials = credentials or Credentials.new()
        self._central: CentralScheduler | None = None
        self._stopped = False
        self._changing = threading.Lock()
        self.outcome = GroupOutcome()

    @property
    def pids(self) -> dict[int, int]:
        """The process of each worker, as its own machine numbers it."""
        return dict(self._central.pids) if self._central else {}

    def stop(self) -> None:
        """Make no more batches, let those that were made come to their end. Any thread may call it."""
        with self._changing:
            self._stopped = True
            if self._central is not None:
                self._central.request_stop()

    def run(self) -> GroupOutcome:
        """Run until the end; JobError where workers failed too often."""
        scheduling = self._batches.scheduling
        for generation in range(scheduling.restarts + 1):
            failed = True
            try:
                self._generation(generation)
                failed = False
                return self.outcome
            except GenerationError as error:
                if error.final:
                    raise JobError(str(error)) from error
                if generation == scheduling.restarts:
                    raise JobError(f"{error} (generation {generation}, the last of {generation + 1})") from error
                self.outcome.restarts = generation + 1
                again = f"generation {generation} failed: {error}; the next goes on from batch {self.outcome.saved}"
                log.warning(again)
            finally:
                self._launcher.gather(failed)
                if self._central is not None:
                    self._central.close()
        raise AssertionError("the last generation returns or raises")

    def _generation(self, number: int) -> None:
        batches = self._batches
        central = CentralScheduler(
            batches,
            self._workers,
            self._policy,
            self._credentials,
            self._launcher.host,
            number,
            self.outcome,
            self._commit,
        )
        with self._changing:
            self._central = central
            if self._stopped:
                central.request_stop()
        self._launcher.launch(batches, self._credentials, number, central)
        central.run()


def _tell_idle(batches: Batches, workers: int, elastic: ScalingPolicy | None) -> None:
    """Tell where the partitioner of groups of batches was chosen, and cannot choose."""
    program = batches.program
    if program.partitioner == BatchProgram.partitioner:  # nobody chose it
        return
    what = f"partitioner={getattr(program.partitioner, 'name', program.partitioner)!r}"
    if not program.cut_by_key:
        missing = next(key for key in program.keys if key not in program.source_schema.names)
        tell_no_effect(what, f"key {missing!r} is made by the function, and blocks are cut before it, in order of rows")
    elif batches.scheduling.blocks == 1 and elastic is None:
        tell_no_effect(what, "there is one block", "give Scheduling(blocks=2) or more")
    elif elastic is None:
        reading = min(batches.receivers(workers), len(program.source.fresh().splits(batches.receivers(workers))))
        if batches.scheduling.blocks <= reading:
            why = f"each of {reading} receivers has at most one of {batches.scheduling.blocks} blocks to itself"
            tell_no_effect(what, why, "give Scheduling(blocks=…) more than there are receivers, or receivers=1")


def run_batches(
    program: BatchProgram,
    scheduling: Scheduling | None = None,
    *,
    workers: int = 2,
    processes: bool = False,
    elastic: str | ScalingPolicy | None = None,
    tls: Tls | None = None,
) -> GroupOutcome:
    """Run batches on this machine, without Spark, to the end of the source.

    Examples
    --------
    >>> from steelyard.resident import Rows, count
    >>> program = BatchProgram(Rows(pa.table({"k": ["a", "b", "a"]})), ("k",), {"n": count()})
    >>> found = run_batches(program, Scheduling(interval=0.01), workers=1)
    >>> pa.concat_tables(found.results.values()).sort_by("k").to_pylist()
    [{'k': 'a', 'n': 2}, {'k': 'b', 'n': 1}]
    """
    launcher: Launcher = ProcessLauncher(GroupWorker) if processes else ThreadLauncher(GroupWorker)
    how = scheduling or Scheduling()
    return GroupJob(program, how, workers, launcher, elastic, None, Credentials.new(tls)).run()

"""A run of batches: generations of workers, one after the other, until the source has come to its end."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from steelyard.core import OptionError, ScalingPolicy, tell_no_effect
from steelyard.resident.gang import GenerationError
from steelyard.resident.generations import Generations
from steelyard.resident.groups.central import CentralScheduler
from steelyard.resident.groups.outcome import GroupOutcome
from steelyard.resident.groups.program import Batches, BatchProgram, Scheduling
from steelyard.resident.groups.worker import GroupWorker
from steelyard.resident.launchers import Launcher, ProcessLauncher, ThreadLauncher
from steelyard.resident.security import Credentials, Tls
from steelyard.scaling.registry import elasticity


class GroupJob(Generations[CentralScheduler]):
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
        self._batches, self._workers = Batches(program, scheduling), workers
        super().__init__(launcher, self._batches, credentials)
        self._policy = None if elastic is None else elasticity(elastic)
        _tell_idle(self._batches, workers, self._policy)
        self._commit = commit
        self.outcome = GroupOutcome()

    @property
    def pids(self) -> dict[int, int]:
        """The process of each worker, as its own machine numbers it."""
        return dict(self._driver.pids) if self._driver else {}

    def run(self) -> GroupOutcome:
        """Run until the end; JobError where workers failed too often."""
        self._generations()
        return self.outcome

    def _directed(self, number: int) -> CentralScheduler:
        return CentralScheduler(
            self._batches,
            self._workers,
            self._policy,
            self._credentials,
            self._launcher.host,
            number,
            self.outcome,
            self._commit,
        )

    def _may_fail(self, error: GenerationError) -> bool:
        if self.outcome.restarts == self._batches.scheduling.restarts:
            return False
        self.outcome.restarts += 1
        return True

    def _resumes_from(self) -> str:
        return f"batch {self.outcome.saved}"


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

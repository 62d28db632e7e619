"""A run of batches: generations of workers, one after the other, until the source has come to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from steelyard.control import Guard
from steelyard.core import OptionError, Progress, ScalingPolicy, tell_no_effect
from steelyard.core.progress import RECOVERED
from steelyard.core.shown import ordinal
from steelyard.resident.gang import GenerationError, Recovery
from steelyard.resident.generations import Generations
from steelyard.resident.groups.adjusting import Adjuster
from steelyard.resident.groups.central import CentralScheduler
from steelyard.resident.groups.commits import Commits, Keeping
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
    guards
        Between `elastic` and the plan.
    keeping
        Where commits are, with which a job goes on after its driver has ended: results are handed on by it instead.
        Windows must be those of a program with `open_end=True`.
    tell
        Gets an event for each batch, decision and failure that is survived.
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
        *,
        guards: Sequence[Guard] = (),
        keeping: Keeping | None = None,
        tell: Callable[[Progress], object] = lambda progress: None,
    ) -> None:
        if workers < 1:
            raise OptionError(f"workers must be 1 or more, got {workers}")
        if keeping is not None and program.window is not None and not program.open_end:
            raise OptionError(
                "keeping= is for a job that can go on, and windows that are closed at the end of the source cannot: "
                "give BatchProgram(open_end=True), or leave keeping= out"
            )
        launcher.require(workers)
        self._batches, self._workers = Batches(program, scheduling), workers
        super().__init__(launcher, self._batches, credentials)
        policy = None if elastic is None else elasticity(elastic)
        _tell_idle(self._batches, workers, policy)
        self._commit, self._keeping, self._tell = commit, keeping, tell
        self._commits: Commits | None = None
        self.outcome = GroupOutcome(recoveries=self.recovered)
        self._adjuster = Adjuster(policy, scheduling, workers, self.outcome, guards, tell)

    @property
    def committed(self) -> int:
        """Batches below this one are done for good."""
        return self._commits.committed if self._commits is not None else self.outcome.delivered

    @property
    def pids(self) -> dict[int, int]:
        """The process of each worker, as its own machine numbers it."""
        return dict(self._driver.pids) if self._driver else {}

    def run(self) -> GroupOutcome:
        """Run until the end; JobError where workers failed too often, StateError where the newest commit is damaged."""
        if self._keeping is None:
            self._generations()
            return self.outcome
        receivers = self._batches.receivers(self._workers)
        commits = self._commits = Commits(
            self._keeping, self._batches.program, self._workers, receivers, self.outcome, self._give_up
        )
        self._commit, complete = commits.take, False
        try:
            self._generations()
            complete = True
        finally:
            commits.close(complete)
        return self.outcome

    def _directed(self, number: int) -> CentralScheduler:
        return CentralScheduler(
            self._batches,
            self._workers,
            self._adjuster,
            self._credentials,
            self._launcher.host,
            number,
            self.outcome,
            self._commit,
            self._commits.saved if self._commits is not None else lambda: None,
            self._tell,
        )

    def _may_fail(self, error: GenerationError) -> bool:
        if self.outcome.restarts == self._batches.scheduling.restarts:
            return False
        self.outcome.restarts += 1
        return True

    def _tell_recovered(self, recovery: Recovery) -> None:
        what = f"workers failed, and others began anew from {self._resumes_from()}"
        said = f"{what}, for the {ordinal(len(self.recovered))} time: {recovery.why}"
        self._tell(Progress(self.outcome.saved, kind=RECOVERED, decision=said, seconds=recovery.seconds))

    def _resumes_from(self) -> str:
        return f"batch {self.outcome.saved}"


def _tell_idle(batches: Batches, workers: int, elastic: ScalingPolicy | None) -> None:
    """Tell where the partitioner of groups of batches was chosen, and cannot choose."""
    program = batches.program
    if program.partitioner == BatchProgram.partitioner:  # nobody chose it
        return
    what = f"partitioner {getattr(program.partitioner, 'name', program.partitioner)!r}"
    if not program.cut_by_key:
        missing = next(key for key in program.keys if key not in program.source_schema.names)
        tell_no_effect(what, f"key {missing!r} is made by the function, and blocks are cut before it, in order of rows")
    elif batches.scheduling.blocks == 1 and elastic is None:
        tell_no_effect(what, "there is one block", "give 2 blocks or more")
    elif elastic is None:
        reading = min(batches.receivers(workers), len(program.source.fresh().splits(batches.receivers(workers))))
        if batches.scheduling.blocks <= reading:
            why = f"each of {reading} receivers has at most one of {batches.scheduling.blocks} blocks to itself"
            tell_no_effect(what, why, "give more blocks than there are workers that read")


def run_batches(
    program: BatchProgram,
    scheduling: Scheduling | None = None,
    *,
    workers: int = 2,
    processes: bool = False,
    launcher: Launcher | None = None,
    elastic: str | ScalingPolicy | None = None,
    tls: Tls | None = None,
) -> GroupOutcome:
    """Run batches to the end of the source: on this machine, without Spark, or where a launcher starts workers.

    Examples
    --------
    >>> from steelyard import count
    >>> from steelyard.resident import Rows
    >>> program = BatchProgram(Rows(pa.table({"k": ["a", "b", "a"]})), ("k",), {"n": count()})
    >>> found = run_batches(program, Scheduling(interval=0.01), workers=1)
    >>> pa.concat_tables(found.results.values()).sort_by("k").to_pylist()
    [{'k': 'a', 'n': 2}, {'k': 'b', 'n': 1}]
    """
    where = launcher or (ProcessLauncher(GroupWorker) if processes else ThreadLauncher(GroupWorker))
    how = scheduling or Scheduling()
    return GroupJob(program, how, workers, where, elastic, None, Credentials.new(tls)).run()

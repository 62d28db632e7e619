"""Changes of the plan: batches are shown to the elasticity policy; what it decides holds for batches that follow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from steelyard.control import Controller, Guard
from steelyard.core import (
    BLOCKS,
    BUCKETS,
    Action,
    BatchObservation,
    Observation,
    Progress,
    ReduceObservation,
    ScalingPolicy,
)
from steelyard.core.needs import OF_BATCHES
from steelyard.resident.groups.outcome import BatchRun, GroupOutcome, PlanChange
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.program import Scheduling

log = logging.getLogger(__name__)


class Adjuster:
    """Which plan holds, and which one will: for all generations of workers, one after the other.

    Parameters
    ----------
    policy
        Chooses numbers of tasks; None leaves them.
    scheduling, workers
        How batches are scheduled, and on how many workers.
    outcome
        What ran so far; changes are noted there.
    guards
        Between the policy and the plan.
    tell
        Gets an event for each decision, and for what it brought.
    """

    what: ClassVar[str] = "a job of groups of batches"
    shows: ClassVar[frozenset[str]] = OF_BATCHES

    def __init__(
        self,
        policy: ScalingPolicy | None,
        scheduling: Scheduling,
        workers: int,
        outcome: GroupOutcome,
        guards: Sequence[Guard] = (),
        tell: Callable[[Progress], object] = lambda progress: None,
    ) -> None:
        self._scheduling, self._workers, self._outcome = scheduling, workers, outcome
        self._controller = Controller(self, policy, guards, tell) if policy is not None else None
        self.plan = ExecutionPlan(scheduling.blocks, scheduling.buckets, workers)
        """What the newest batch was cut by."""
        self.begin()

    def begin(self) -> None:
        """Workers begin behind what is saved; what was wished of those before is forgotten."""
        if self._outcome.changes:
            self.plan = self._outcome.changes[-1].plan
        self.pending: PlanChange | None = None
        """A change that no batch was cut by yet. Until one is done, batches say nothing of it."""
        self._wishes: list[PlanChange] = []
        """It and what was wished before, with which a group may have been sent."""
        self._holds_from = self._outcome.saved
        self._observed = self._outcome.saved - 1
        self._previous: BatchRun | None = None

    @property
    def counting(self) -> bool:
        """Whether somebody looks at the number of keys."""
        return self._controller is not None

    def begun(self, run: BatchRun) -> float:
        """When a batch could begin: when it was there, and the one before done."""
        return max(run.ready, self._previous.done) if self._previous is not None else run.ready

    def ended(self, run: BatchRun) -> None:
        """A batch is done: the next may begin."""
        self._previous = run

    def due(self, run: BatchRun | None) -> float | None:
        """The moment from which the batch that runs is overdue; None where nobody asks."""
        if self._controller is None or run is None or run.batch <= self._observed:
            return None
        return self.begun(run) + self._scheduling.overdue * self._scheduling.interval

    def expected(self, run: BatchRun, now: float) -> float:
        """Seconds that a batch that still runs can be expected to take, by what the one before took."""
        elapsed = now - self.begun(run)
        previous = self._previous
        if previous is not None and previous.rows and previous.plan == run.plan:
            return max(elapsed, previous.seconds * run.rows / previous.rows)
        return elapsed

    def show(self, run: BatchRun, seconds: float, now: float, released: int, group_end: int) -> PlanChange | None:
        """Show a batch to the policy, once; a change that is to be passed on.

        `seconds` is what it took, or can be expected to take where it still runs `now`; `released` is the newest batch
        that was cut, and `group_end` the first that is not scheduled.
        """
        if self._controller is None or run.batch <= self._observed:
            return None
        self._observed = run.batch
        how = self._scheduling
        waits = self.pending is not None and not how.boundary  # at a boundary the newest wish counts
        if waits or run.batch < self._holds_from:  # it ran with a plan that was changed since
            return None
        # what is cut is cut: receivers may be further than the batch that was seen
        first = max(group_end if how.boundary else run.batch + how.adjust, released + 1)
        self._shown = run, seconds, now, first
        decision = self._controller.look()
        # nothing to add where nothing is to change: a policy that has decided says so until its change holds
        return self.pending if decision and not decision.done.is_nothing and not how.boundary else None

    def observe(self) -> Observation:
        """The batch that is shown."""
        run, seconds, now, _ = self._shown
        mapped = max(0.0, run.mapped - run.begun) if run.mapped else 0.0
        return BatchObservation(
            run.batch,
            run.rows,
            run.keys,
            run.plan.blocks,
            run.plan.buckets,
            seconds,
            self._scheduling.interval,
            slots=self._scheduling.slots * self._workers,
            map_seconds=mapped,
            reduce_seconds=max(0.0, seconds - mapped) if mapped else 0.0,
            reduce_tasks=tuple(ReduceObservation(*one) for one in sorted(run.reduce_tasks.items())),
        ).at(now)

    def apply(self, action: Action) -> float:
        """Another plan from the next batch on that can follow it, which disturbs nobody."""
        action.require_tasks_only(self.what)
        run, _, _, first = self._shown
        tasks = {BLOCKS: run.plan.blocks, BUCKETS: run.plan.buckets} | dict(action.parallelism)
        wanted = ExecutionPlan(tasks[BLOCKS], tasks[BUCKETS], self._workers)
        self.pending = PlanChange(run.batch, first, wanted, action.reason)
        self._wishes = [*self._wishes[1 - self._scheduling.history :], self.pending]
        log.info("from batch %d on: %d blocks, %d buckets (%s)", first, wanted.blocks, wanted.buckets, action.reason)
        return 0.0

    def notice(self, batch: int, plan: ExecutionPlan) -> None:
        """A batch was cut; by a changed plan, perhaps late, or when another one is wished already."""
        if plan == self.plan:
            return
        self.plan, self._holds_from = plan, batch
        wish = next((one for one in reversed(self._wishes) if one.plan == plan), None)
        if wish is not None:
            self._wishes = [later for later in self._wishes if later.decided_on > wish.decided_on]
            self._outcome.changes.append(replace(wish, first=batch))
            del self._outcome.changes[: -self._scheduling.history]
        if wish == self.pending:
            self.pending = None

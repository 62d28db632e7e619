"""Changes of the plan: batches are shown to the elasticity policy; what it decides holds for batches that follow."""

from __future__ import annotations

import logging
from dataclasses import replace

from steelyard.core import ElasticityPolicy, Observation
from steelyard.resident.groups.outcome import BatchRun, GroupOutcome, PlanChange
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.program import Scheduling

log = logging.getLogger(__name__)


class Adjuster:
    """Which plan holds, and which one will.

    Parameters
    ----------
    policy
        Chooses numbers of tasks; None leaves them.
    scheduling, workers
        How batches are scheduled, and on how many workers.
    outcome
        What ran so far; changes are noted there.
    """

    def __init__(
        self, policy: ElasticityPolicy | None, scheduling: Scheduling, workers: int, outcome: GroupOutcome
    ) -> None:
        self._policy, self._scheduling, self._workers, self._outcome = policy, scheduling, workers, outcome
        self.plan = ExecutionPlan(scheduling.blocks, scheduling.buckets, workers)
        """What the newest batch was cut by."""
        if outcome.changes:
            self.plan = outcome.changes[-1].plan
        self.pending: PlanChange | None = None
        """A change that no batch was cut by yet. Until one is done, batches say nothing of it."""
        self._wishes: list[PlanChange] = []
        """It and what was wished before, with which a group may have been sent."""
        self._holds_from = outcome.saved
        self._observed = outcome.saved - 1

    @property
    def counting(self) -> bool:
        """Whether somebody looks at the number of keys."""
        return self._policy is not None

    def begun(self, run: BatchRun) -> float:
        """When a batch could begin: when it was there, and the one before done."""
        previous = self._outcome.batches.get(run.batch - 1)
        return max(run.ready, previous.done) if previous is not None else run.ready

    def due(self, run: BatchRun | None) -> float | None:
        """The moment from which the batch that runs is overdue; None where nobody asks."""
        if self._policy is None or run is None or run.batch <= self._observed:
            return None
        return self.begun(run) + self._scheduling.overdue * self._scheduling.interval

    def expected(self, run: BatchRun, now: float) -> float:
        """Seconds that a batch that still runs can be expected to take, by what the one before took."""
        elapsed = now - self.begun(run)
        previous = self._outcome.batches.get(run.batch - 1)
        if previous is not None and previous.done and previous.rows and previous.plan == run.plan:
            return max(elapsed, previous.seconds * run.rows / previous.rows)
        return elapsed

    def observe(self, run: BatchRun, seconds: float, released: int, group_end: int) -> PlanChange | None:
        """Show a batch to the policy, once; a change that is to be passed on.

        `released` is the newest batch that was cut, and `group_end` the first that is not scheduled.
        """
        if self._policy is None or run.batch <= self._observed:
            return None
        self._observed = run.batch
        how, plan = self._scheduling, run.plan
        waits = self.pending is not None and not how.boundary  # at a boundary the newest wish counts
        if waits or run.batch < self._holds_from:  # it ran with a plan that was changed since
            return None
        mapped = max(0.0, run.mapped - run.begun) if run.mapped else 0.0
        seen = Observation(
            run.batch,
            run.rows,
            run.keys,
            plan.blocks,
            plan.buckets,
            seconds,
            how.interval,
            slots=how.slots * self._workers,
            map_seconds=mapped,
            reduce_seconds=max(0.0, seconds - mapped) if mapped else 0.0,
        )
        decision = self._policy.decide(seen)
        if (decision.blocks, decision.buckets) == (plan.blocks, plan.buckets):
            return None  # nothing to add: a policy that has decided says so until its change holds
        # what is cut is cut: receivers may be further than the batch that was seen
        first = max(group_end if how.boundary else run.batch + how.adjust, released + 1)
        wanted = ExecutionPlan(decision.blocks, decision.buckets, self._workers)
        self.pending = PlanChange(run.batch, first, wanted, decision.reason)
        self._wishes = [*self._wishes[1 - how.history :], self.pending]
        log.info("from batch %d on: %d blocks, %d buckets (%s)", first, wanted.blocks, wanted.buckets, decision.reason)
        return None if how.boundary else self.pending

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

"""Who is in charge of a query on workers that stay: an elasticity policy, what it has learnt, and when it looks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from steelyard.control import Controller, Guard
from steelyard.core import Action, ActionRefusedError, Observation, Progress, ScalingPolicy
from steelyard.core.checkpointing import CHECKPOINT_INTERVAL
from steelyard.core.dataflow import Dataflow
from steelyard.core.topology import Instance
from steelyard.resident.jobs import Job
from steelyard.resident.snapshot import SnapshotStore
from steelyard.spark.memory import KeptPolicy

LEARNT = "policy.json"
"""The file of a checkpoint that has what its elasticity policy has learnt."""


class Autoscaler:
    """A policy that looks at a resident job, and gives its operators other numbers of instances.

    Its time goes on over restarts of the query, so that what a policy remembers of looks counts still.

    Parameters
    ----------
    job
        What is looked at.
    policy, guards
        As a controller has them; the policy is copied, since every query has one of its own.
    every
        Seconds between two looks.
    memory
        The file for what the policy has learnt; read now, and written after each look.
    own_interval
        Whether the user said how far apart snapshots are: then no policy sees what they cost, or sets another interval.
    tell
        Gets an event for each decision, and for what it brought.
    """

    what: ClassVar[str] = "engine('resident')"

    def __init__(
        self,
        job: Job,
        policy: ScalingPolicy,
        guards: Sequence[Guard],
        every: float,
        memory: Path,
        tell: Callable[[Progress], object],
        own_interval: bool = False,
    ) -> None:
        self._job, self.every, self._own_interval = job, every, own_interval
        own = copy.deepcopy(policy)

        def told(event: Progress) -> None:
            tell(replace(event, batch=job.outcome.epochs))

        self._controller = Controller(self, own, guards, told)
        self._memory = KeptPolicy(memory, own)
        self._before = self._memory.recall()

    @property
    def shows(self) -> frozenset[str]:
        """What the job does."""
        return self._job.shows - ({"checkpoints"} if self._own_interval else set())

    def observe(self) -> Observation:
        """The job, in a time that began with the first start of the query."""
        seen = self._job.observe()
        checkpoints = None if self._own_interval else seen.checkpoints
        return replace(seen, time=self._before + seen.time, checkpoints=checkpoints)

    def apply(self, action: Action) -> float:
        """The job does it, in place or by a snapshot."""
        if self._own_interval and CHECKPOINT_INTERVAL in action.settings:
            raise ActionRefusedError(
                "trigger(processing_time=...) says how far apart snapshots are: leave it out, and a policy may"
            )
        return self._job.apply(action)

    def run(self) -> None:
        """Look again and again until the job has ended, for a thread beside the one of `job.run`."""
        while not self._job.ended:
            self._job.advance(self.every)
            self.look()

    def look(self) -> None:
        """Look once, if workers have told anything: before, there is nobody who could go over in place."""
        if self._job.ended or not self._job.metrics:
            return
        self._controller.look()
        self._memory.keep(self._controller.seen.time)


def as_it_was(dataflow: Dataflow, store: SnapshotStore) -> Dataflow:
    """The dataflow with the numbers of instances that the newest commit of a store has of its operators."""
    newest = store.newest()
    known = [Instance.parse(name).operator for name in newest.files] if newest is not None else []
    numbers = {name: known.count(name) for name in known}
    return dataflow.rescaled(numbers) if numbers.keys() == dataflow.by_name.keys() else dataflow

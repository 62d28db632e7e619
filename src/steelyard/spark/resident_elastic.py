"""Who is in charge of a query on workers that stay: an elasticity policy, what it has learnt, and when it looks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from steelyard.control import Controller, Guard
from steelyard.core import Action, Observation, Progress, ScalingPolicy
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
    ) -> None:
        self._job, self.every = job, every
        own = copy.deepcopy(policy)

        def told(event: Progress) -> None:
            tell(replace(event, batch=job.outcome.epochs))

        self._controller = Controller(self, own, guards, told)
        self._memory = KeptPolicy(memory, own)
        self._before = self._memory.recall()

    @property
    def shows(self) -> frozenset[str]:
        """What the job does."""
        return self._job.shows

    def observe(self) -> Observation:
        """The job, in a time that began with the first start of the query."""
        seen = self._job.observe()
        return replace(seen, time=self._before + seen.time)

    def apply(self, action: Action) -> float:
        """The job does it, in place or by a snapshot."""
        return self._job.apply(action)

    def look(self) -> None:
        """Look once, if workers have told anything: before, there is nobody who could go over in place."""
        if not self._job.metrics:
            return
        self._controller.look()
        self._memory.keep(self._controller.seen.time)


def as_it_was(dataflow: Dataflow, store: SnapshotStore) -> Dataflow:
    """The dataflow with the numbers of instances that the newest commit of a store has of its operators."""
    newest = store.newest()
    known = [Instance.parse(name).operator for name in newest.files] if newest is not None else []
    numbers = {name: known.count(name) for name in known}
    return dataflow.rescaled(numbers) if numbers.keys() == dataflow.by_name.keys() else dataflow

"""What policies that predict times have in common: how they are trained, kept up to date, and asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import numpy as np

from steelyard.core import State
from steelyard.core.control import Action
from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.measured import Measured, Reading
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.placement.collecting import Watched, require_recorded, watched
from steelyard.placement.draws import drawn
from steelyard.placement.features import WINDOW
from steelyard.placement.learnt import Learnt
from steelyard.placement.prediction import Prediction
from steelyard.placement.records import Collector
from steelyard.placement.regression import KERNELS, Parameters

RETRAINED = 1200.0
"""Seconds from one training to the next (Li 2018, section 2.2.1)."""
Times: TypeAlias = Callable[[Ints], Floats]
"""The objective of placements: float64[B], the sum of all applications' times, for int64[B, threads]."""


@dataclass
class Predicting(ABC):
    """A policy that predicts the times of placements, and searches among them."""

    schedules: int = 40
    dwell: float = 30.0
    settle: float = 300.0
    tuples: float = 300.0
    kernel: str = "rbf"
    pooled: bool = False
    diversified: bool = True
    learnt: Learnt = field(default_factory=Learnt, init=False, repr=False, compare=False)

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise OptionError.unknown("kernel", self.kernel, KERNELS)
        if self.schedules < 2:
            raise OptionError(f"schedules must be 2 or more, to see what a placement changes, got {self.schedules!r}")
        if not self.dwell >= WINDOW:
            raise OptionError(f"dwell must be at least a window of {WINDOW:g} s, got {self.dwell!r}")
        for name in ("settle", "tuples"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"{name} must be 0 or more, got {getattr(self, name)!r}")

    @abstractmethod
    def search(self, setup: Setup, times: Times, present: Ints) -> Ints:
        """A placement with a low time, as far as `times` predicts it."""

    def train(self, cluster: Measured, seed: int) -> None:
        """Learn on a cluster that records tuples, under placements drawn at random."""
        recorded = require_recorded(cluster)
        setup, share = cluster.setup, self.share(cluster)
        self.learnt = Learnt()
        for assignment in drawn(setup, self.schedules, seed, diversified=self.diversified):
            self.learnt.add(setup, watched(recorded, assignment, self.dwell, share, self.settle))
        self.learnt.fit(self.parameters, self.pooled)

    @property
    def parameters(self) -> Parameters:
        """Of its regressions."""
        return Parameters(self.kernel)

    def share(self, cluster: Measured) -> float:
        """Of the source tuples that are followed there."""
        rate = float(cluster.rates.sum())
        return min(1.0, self.tuples / rate) if self.tuples and rate > 0 else 1.0

    def learn(self, setup: Setup, more: Watched) -> None:
        """Add what was recorded since, and learn anew: what the document does every 20 minutes."""
        self.learnt.add(setup, more)
        self.learnt.fit(self.parameters, self.pooled)

    def prediction(self, setup: Setup, seen: Reading) -> Prediction | None:
        """Its model with the loads that were just seen; None where it is not trained, OptionError for another setup."""
        why = self.learnt.misfit(setup) if self.learnt.is_trained else ""
        if why:
            raise OptionError(f"{self.name} cannot predict this: {why}")
        return self.learnt.prediction(setup, seen)

    def place(self, setup: Setup, seen: Reading) -> Action:
        """The placement with the lowest predicted time that it finds, where that is lower than the present one's."""
        if not self.learnt.is_trained:
            return Action(reason=f"{self.name} is not trained: it has no records to predict from")
        why = self.learnt.misfit(setup)
        if why:
            return Action(reason=f"{self.name} cannot predict this: {why}")
        model = self.learnt.prediction(setup, seen)
        assert model is not None

        def times(assignments: Ints) -> Floats:
            return np.asarray(model.times(assignments).sum(axis=1))

        found = self.search(setup, times, seen.assignment)
        before, after = times(np.stack([seen.assignment, found])).tolist()
        told = f"{1000 * after:.3g} ms predicted, {1000 * before:.3g} ms where threads are"
        if not after < before:
            return Action(reason=f"nothing better was found: {told}")
        return setup.action(found, f"{told}: {setup.moved(seen.assignment, found)} threads move", seen.assignment)

    def state(self) -> State:
        """Its regressions and weights."""
        return self.learnt.state()

    def restore(self, state: State) -> None:
        """Go on with them."""
        self.learnt = Learnt.of(state)


def dealt_as(setup: Setup, present: Ints) -> Ints:
    """As many threads as run now in round robin; the present placement where there are too few slots for that."""
    try:
        return setup.dealt(setup.parallelism_of(present))
    except OptionError:
        return present


def kept_up(
    policy: Predicting, cluster: Measured, seconds: float, every: float = RETRAINED, look: float = 60.0
) -> list[Reading]:
    """A policy in charge of a cluster, which learns anew every 20 minutes from all that came so far.

    It may begin untrained: until the first records are handed out to it, all stays where it is. What was measured is
    given back, look by look.

    Parameters
    ----------
    policy, cluster
        Who decides, and where.
    seconds
        How long, in the cluster's time.
    every
        Seconds from one hand-out of records to the next.
    look
        Seconds of recording at a time.
    """
    recorded, collector, found = require_recorded(cluster), Collector(every), list[Reading]()
    share, end, begun = policy.share(cluster), cluster.now + seconds, cluster.now
    while cluster.now < end:
        seen = watched(recorded, cluster.assignment, look, share)
        found.append(seen.reading)
        collector.add(seen.records)
        more = collector.handed_out(cluster.now - begun)
        if more is not None:
            policy.learn(cluster.setup, replace(seen, records=more))
            action = policy.place(cluster.setup, seen.reading)
            if not action.is_nothing:
                cluster.deploy(cluster.setup.assignment(action, cluster.assignment))
    return found

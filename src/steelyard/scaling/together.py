"""One controller for rate, skew and failures together: of all that could be done, the least that cures, in one budget.

Siachamis 2024, chapter 5, has it as an open direction: who scales and who balances should not work against each other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from math import inf, isnan, nan, sqrt
from typing import ClassVar

import numpy as np

from steelyard.core import Action, Observation, OptionError, State
from steelyard.core.checkpointing import CHECKPOINT_INTERVAL
from steelyard.scaling.foresight import Foresight
from steelyard.scaling.sight import nothing

ENOUGH = 2
"""Failures from which on it is known how often they come: the first may come at any time."""
PATIENCE = 600.0
"""Seconds after which an interval is wanted again that was refused."""
CHANGED = 2.0
"""A checkpoint interval is left as it is unless a better one is so many times as long, or as short."""


@dataclass(frozen=True)
class Remedy:
    """Something that could be done at a look."""

    action: Action
    disturbs: float
    """Seconds."""


@dataclass(eq=False)
class Together:
    """Move, rescale, or set checkpoints otherwise: at each look the least that cures, out of one budget of disturbance.

    A job that is behind may have too few instances, or enough of them on the wrong workers. Where one worker is full
    while others have room for one of its instances, that instance moves: it is the smaller disturbance. Only when no
    move helps are numbers changed, as `foresight` would. A hot key, which neither cures, is named. What every change
    stops the job for is added up, and what does not fit in the budget any more waits, except that a job that is behind
    may always grow. Where the job shows its checkpoints, their interval goes with its failures, from the second on: the
    root of 2 x cost x time between failures (J. W. Young 1974), but never below what one takes to be durable; that
    stops nothing. An interval that is refused is left alone for ten minutes.

    Parameters
    ----------
    budget, per
        Seconds for which changes may stop the job, in so many seconds.
    full
        Share of its cores from which a worker is full.
    gap
        Share of cores by which the fullest worker must become emptier for a move to be worth it.
    move
        Seconds for which a move stops the job.
    price, outlook, restart, per_gigabyte, workers
        As those of `foresight`.

    Examples
    --------
    >>> from steelyard.core import InstanceObservation, OperatorObservation
    >>> from steelyard.core.control import WorkerObservation
    >>> log = OperatorObservation.of("log", [InstanceObservation(
    ...     "log#0", processed_per_second=500.0, busy=0.4, idle=0.6, cpu=0.4, arrived_per_second=500.0, lag=0.0)], {})
    >>> half = {"processed_per_second": 250.0, "busy": 0.5, "idle": 0.5, "cpu": 0.5}
    >>> each = [InstanceObservation(f"map#{number}", **half) for number in (0, 1)]
    >>> seen = Observation(
    ...     15.0, 15.0, (log, OperatorObservation.of("map", each, {"log": 500.0})),
    ...     placement={"log#0": 1, "map#0": 0, "map#1": 0},
    ...     workers=(WorkerObservation(0, 0.95, 1.0), WorkerObservation(1, 0.4, 1.0), WorkerObservation(2, 0.0, 1.0)))
    >>> print(Together().decide(seen).placement)
    {'map#0': 2}
    """

    budget: float = 240.0
    per: float = 3600.0
    full: float = 0.85
    gap: float = 0.2
    move: float = 5.0
    price: float = 20.0
    outlook: float = 1200.0
    restart: float = 30.0
    per_gigabyte: float = 10.0
    workers: int = 0

    name: ClassVar[str] = "together"
    needs: ClassVar[tuple[str, ...]] = ("operators", "instances", "arrivals", "workers", "placement")

    def __post_init__(self) -> None:
        for one in fields(self):
            if not 0 <= getattr(self, one.name) < inf:
                raise OptionError(f"{one.name} of Together must be 0 or more, got {getattr(self, one.name)!r}")
        self._spent: deque[tuple[float, float]] = deque()
        self._asked = False
        self._wished = self._refused = nan
        """When another interval was wanted at the newest look, and when one was refused; no part of what is kept."""
        self._foresight = Foresight(self.price, self.outlook, self.restart, self.per_gigabyte, workers=self.workers)

    def watch(self, observation: Observation) -> None:
        """Learn from a look at which nobody decides."""
        self._foresight.watch(observation)

    def decide(self, observation: Observation) -> Action:
        """The least that cures what is wrong, if it fits in the budget."""
        numbers, settings = self._foresight.decide(observation), self._checkpoints(observation)
        if not settings.is_nothing:  # alone: an engine that refuses the rest would refuse all
            self._foresight.refused()
            self._asked, self._wished = False, observation.time
            return settings
        self._wished = nan
        if numbers.is_nothing and numbers.reason.startswith(nothing("").reason):
            return numbers
        self._asked = False
        while self._spent and self._spent[0][0] <= observation.time - self.per:
            self._spent.popleft()
        moved = self._move(observation)
        grows = any(count > observation.parallelism[name] for name, count in numbers.parallelism.items())
        remedies = [moved] if moved is not None else []
        if not numbers.is_nothing and (moved is None or not grows):
            remedies = [Remedy(numbers, self._foresight.standstill(observation)), *remedies]
        if not remedies:
            return numbers
        chosen = remedies[0] if moved is None else min(remedies, key=lambda one: one.disturbs)
        spent = sum(seconds for _, seconds in self._spent)
        behind = sum(one.lag_seconds or 0.0 for one in observation.operators)
        if chosen.action is not numbers:
            self._foresight.refused()
        if spent + chosen.disturbs > self.budget and not (grows and behind > 0):
            self._foresight.refused()
            why = f"{spent:.0f} of {self.budget:g} s are spent for which changes may stop the job, this wants "
            return Action(reason=f"{why}{chosen.disturbs:.0f} s: {chosen.action.reason}")
        self._spent.append((observation.time, chosen.disturbs))
        self._asked = True
        return chosen.action

    def _move(self, seen: Observation) -> Remedy | None:
        """The instance of the fullest worker that makes the fullest of two workers emptiest elsewhere."""
        if len(seen.workers) < 2:
            return None
        loads = {one.number: one.load for one in seen.workers}
        cores = {one.number: one.cores for one in seen.workers}
        fullest = max(loads, key=lambda one: loads[one])
        emptiest = min(loads, key=lambda one: loads[one])
        if loads[fullest] < self.full:
            return None
        used = {one.name: one.cpu or 0.0 for operator in seen.operators for one in operator.instances}
        theirs = [name for name, worker in seen.placement.items() if worker == fullest and used.get(name, 0.0) > 0]
        if len(theirs) < 2:
            return None

        def after(name: str) -> float:
            leaves = loads[fullest] - used[name] / cores[fullest]
            return max(leaves, loads[emptiest] + used[name] / cores[emptiest])

        best = min(theirs, key=lambda name: (after(name), name))
        if loads[fullest] - after(best) < self.gap:
            return None
        reason = (
            f"worker {fullest} is full to {loads[fullest]:.0%}, worker {emptiest} to {loads[emptiest]:.0%}: "
            f"{best} moves, and the fuller of them is then full to {after(best):.0%}"
        )
        return Remedy(Action(reason=reason, placement={best: emptiest}), self.move)

    def _checkpoints(self, seen: Observation) -> Action:
        """Another interval, where failures and what a checkpoint costs say so."""
        known = seen.checkpoints
        if known is None or min(known.failures_per_hour, known.costs, known.interval) <= 0:
            return Action()
        if len(known.failed_at) < ENOUGH or 0 <= seen.time - self._refused < PATIENCE:
            return Action()
        between = 3600.0 / known.failures_per_hour
        better = max(sqrt(2 * known.costs * between), known.seconds)
        if 1 / CHANGED < better / known.interval < CHANGED:
            return Action()
        reason = (
            f"a checkpoint costs {known.costs:.2g} s and a failure comes every {between:,.0f} s: "
            f"there is to be one every {better:.3g} s"
        )
        return Action(reason=reason, settings={CHECKPOINT_INTERVAL: f"{better:.3g}"})

    def refused(self) -> None:
        """Nothing came of it: it costs nothing, either."""
        if self._asked and self._spent:
            self._spent.pop()
        self._asked = False
        self._refused = self._refused if isnan(self._wished) else self._wished
        self._foresight.refused()

    def state(self) -> State:
        """What foresight has learnt, and what is spent."""
        spent = np.array(self._spent, dtype=np.float64).reshape(-1, 2)
        return {**self._foresight.state(), "spent": spent}

    def restore(self, state: State) -> None:
        """Go on from that."""
        self._foresight.restore({name: array for name, array in state.items() if name != "spent"})
        self._spent = deque((time, seconds) for time, seconds in state["spent"].tolist())

"""Who balances a similarity join: a trigger says when, a balancer says which worksets move, and both make a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from steelyard.core.control import Action, Observation, ScalingPolicy
from steelyard.core.errors import OptionError
from steelyard.core.policies import Learning, State
from steelyard.core.worksets import WorksetId, WorksetLoad
from steelyard.similarity.balancer import Balancer, Greedy, worker_loads
from steelyard.similarity.registry import BALANCERS, TRIGGERS
from steelyard.similarity.triggers import Trigger


@dataclass(eq=False)
class Balancing:
    """Moves worksets as a balancer plans it, when a trigger says so.

    Loads are added up from one plan to the next; where [guards](control.md) refuse a plan, the next one sees them too.

    Parameters
    ----------
    trigger
        When.
    balancer
        Which worksets go where.
    split
        Whether a workset that has more than a worker's share of all load, which no move can mend, is cut into pieces.

    Examples
    --------
    >>> from steelyard.core.worksets import JoinObservation
    >>> from steelyard.similarity import EveryWindow
    >>> worksets = [WorksetLoad(0, n, worker=0, load=load) for n, load in enumerate([4.0, 3.0, 2.0, 1.0])]
    >>> seen = JoinObservation(loads=[10.0, 0.0], window_started=True, worksets=worksets)
    >>> action = Balancing(EveryWindow()).decide(Observation(60.0, 60.0, join=seen))
    >>> action.moves, action.reason
    ({(0, 0): 1, (0, 3): 1}, 'a window started')
    """

    needs: ClassVar[tuple[str, ...]] = ("worksets",)

    trigger: Trigger
    balancer: Balancer = field(default_factory=Greedy)
    split: bool = False

    def __post_init__(self) -> None:
        self._known: dict[WorksetId, WorksetLoad] = {}
        self._planned: dict[WorksetId, WorksetLoad] = {}
        """What the newest plan was made from, and"""
        self._learnt: State = {}
        """what the balancer had learnt before it."""

    def decide(self, observation: Observation) -> Action:
        """Which worksets move and which are cut, if it is time to."""
        seen = observation.join
        assert seen is not None, "an engine that shows no worksets is refused"
        self._add({} if seen.dealt_anew else self._known, seen.worksets)
        if not self._known:
            return Action()
        worksets, workers = tuple(self._known.values()), len(seen.loads)
        loads = worker_loads(worksets, workers).tolist()
        verdict = self.trigger.should(replace(seen, loads=loads, worksets=worksets))
        if not verdict:
            return Action(reason=verdict.reason)
        self._learnt = self.state()
        planned = self.balancer.moves(worksets, workers)
        self._planned, self._known = self._known, {}
        cuts = dict.fromkeys(_heavy(worksets, workers), max(2, workers)) if self.split else {}
        moves = {move.id: move.target for move in planned if move.id not in cuts}
        return Action(
            moves=moves, cuts=cuts, reason=verdict.reason if moves or cuts else f"{verdict.reason}; no move helps"
        )

    def refused(self) -> None:
        """Nothing of the plan may be done: go on adding up, and the balancer has not seen these loads."""
        self._known = self._planned
        self.restore(self._learnt)

    def state(self) -> State:
        """What the balancer has learnt. Loads are counted anew after a restart."""
        return self.balancer.state() if isinstance(self.balancer, Learning) else {}

    def restore(self, state: State) -> None:
        """Give the balancer what it had learnt."""
        if isinstance(self.balancer, Learning):
            self.balancer.restore(state)

    def _add(self, known: dict[WorksetId, WorksetLoad], worksets: Sequence[WorksetLoad]) -> None:
        for one in worksets:
            before = known.get(one.id)
            known[one.id] = replace(one, load=one.load + before.load) if before else one
        self._known = known


def _heavy(worksets: Sequence[WorksetLoad], workers: int) -> list[WorksetId]:
    """Those that have more than a worker's share of all load, and are not cut."""
    fair = sum(one.load for one in worksets) / workers
    return [one.id for one in worksets if one.load > fair and one.whole]


def balancing(
    trigger: str | Trigger | ScalingPolicy, balancer: str | Balancer = "greedy", split: bool = False
) -> ScalingPolicy:
    """A policy from a trigger and a balancer, objects or names; one that decides by itself is given back as it is.

    >>> balancing("imbalance_above?limit=0.5", "bandit").balancer.explore
    0.1
    """
    if not isinstance(trigger, str) and isinstance(trigger, ScalingPolicy):
        if balancer != "greedy" or split:
            raise OptionError(f"{type(trigger).__name__} decides by itself: leave balancer and split away")
        return trigger
    return Balancing(TRIGGERS.named(trigger), BALANCERS.named(balancer), split)

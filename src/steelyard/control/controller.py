"""Who is in charge of a job: looks at it, asks a policy, and has done what the guards allow."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from steelyard.control.guards import Guard
from steelyard.core import Insisting, OptionError, Progress, Watching
from steelyard.core.clock import Clock
from steelyard.core.control import (
    Action,
    ActionRefusedError,
    Controllable,
    Observation,
    ScalingPolicy,
    Timed,
)
from steelyard.core.needs import SHOWN
from steelyard.core.progress import BROUGHT, DECISION
from steelyard.core.shown import Shown, counted

HISTORY = 1000
"""Decisions that are kept."""
_ROUNDING = 1e-6
"""Of an interval: less time than that is none."""


@dataclass(repr=False)
class Decision(Shown):
    """What was decided at one look, and what became of it."""

    seen: Observation
    wanted: Action
    """What the policy wants."""
    done: Action
    """What guards left of it: nothing, perhaps."""
    refused: str = ""
    """Why the engine cannot do what guards left, if it cannot."""
    disturbed: float = 0.0
    """Seconds for which doing it disturbs the job."""
    came: Observation | None = None
    """What was seen at the next look after that."""

    @property
    def time(self) -> float:
        """When, in the time of the engine."""
        return self.seen.time

    @property
    def ends(self) -> float:
        """When the job goes on undisturbed."""
        return self.seen.time + self.disturbed

    @property
    def parallelism(self) -> dict[str, int]:
        """How many instances or tasks there are from then on."""
        return {**self.seen.parallelism, **self.done.parallelism}

    @property
    def placement(self) -> dict[str, int]:
        """Where instances are from then on, as far as that is known."""
        return {**self.seen.placement, **self.done.placement}

    @property
    def came_to_nothing(self) -> bool:
        """Whether guards and the engine left nothing of a change that is wanted."""
        return self.done.is_nothing and not self.wanted.changes(self.seen).is_nothing

    def progress(self, kind: str) -> Progress:
        """As an event: that it was taken, or what it brought."""
        figures = {"before": self.seen.figures, "after": self.came.figures if self.came else {}}
        return Progress(
            self.seen.number,
            decision=self.refused or self.done.reason or self.wanted.reason,
            kind=kind,
            words=str(self),
            details={
                "at_seconds": self.time,
                "wanted": _numbers(self.wanted.changes(self.seen)),
                "done": _numbers(self.done),
                "parallelism": self.parallelism,
                "disturbed_seconds": self.disturbed,
                **figures,
            },
        )

    def __str__(self) -> str:
        moved = counted(len(self.done.moves), "workset") + " moved" if self.done.moves else ""
        cut = counted(len(self.done.cuts), "workset") + " cut" if self.done.cuts else ""
        parts = (self.parallelism, self.done.placement, self.done.settings, _routes(self.done))
        there = [str(part) for part in parts if part]
        said = ", ".join([*there, *filter(None, [moved, cut])]) or "nothing is done"
        refused = f"; refused: {self.refused}" if self.refused else ""
        return f"{self.time:,.0f} s: {said}, {self.done.reason or self.wanted.reason}{refused}"


class Controller:
    """A policy in charge of an engine.

    It has no clock: who owns the engine calls `look` when a batch has ended or an interval is over, and time is what
    the engine says.

    Parameters
    ----------
    engine
        What is looked at and acted on.
    policy
        Who decides.
    guards
        What stands between the two, asked one after the other.
    history
        Decisions that are kept; None for all.
    tell
        Gets an event for each change that was wanted, done or not, and one for what each that was done brought.

    Examples
    --------
    >>> from steelyard.control import LargestStep
    >>> from steelyard.core.control import OperatorObservation
    >>> class Job:
    ...     what, shows, tasks = "a job", frozenset({"operators"}), 2
    ...     def observe(self):
    ...         return Observation(10.0, 10.0, (OperatorObservation("map", self.tasks),))
    ...     def apply(self, action):
    ...         self.tasks = action.parallelism["map"]
    ...         return 0.0
    >>> class Eight:
    ...     def decide(self, observation):
    ...         return Action({"map": 8}, "eight are better")
    >>> print(Controller(Job(), Eight(), [LargestStep(up=3)]).look())
    10 s: {'map': 5}, eight are better; no more than 3 at once
    """

    def __init__(
        self,
        engine: Controllable,
        policy: ScalingPolicy,
        guards: Sequence[Guard] = (),
        tell: Callable[[Progress], object] = lambda progress: None,
        history: int | None = HISTORY,
    ) -> None:
        if not hasattr(policy, "decide"):
            raise OptionError(f"policy is an object of steelyard.scaling, as DS2(), got {policy!r}")
        require_shown(policy, engine.shows, engine.what)
        self.engine, self.policy, self._tell = engine, policy, tell
        self.guards = copy.deepcopy(tuple(guards))  # what they remember belongs to this run
        self.decisions: deque[Decision] = deque(maxlen=history)
        """Those that wanted a change, oldest first, done or not."""
        self.last: Decision | None = None
        """The newest that was done."""
        self.seen = Observation(0.0, 0.0)
        """What was seen at the newest look."""
        self._clock = Clock()
        self._hidden: Observation | None = None
        """The same, where guards kept it from the policy."""

    def look(self) -> Decision | None:
        """Look once; what was decided, or None where a guard says that nobody decides now.

        Where the clock jumped, nothing is done, and neither guards nor the policy hear of that look: rates over a time
        that was not so are no rates.
        """
        self.seen = seen = self.engine.observe().behind(self._hidden)
        if why := self._clock.jumped(seen):
            self._hidden = seen
            none = Action(reason=f"nothing is done: {why}")
            return Decision(seen, none, none)
        if self.last is not None and self.last.came is None and seen.time > self.last.ends:
            self.last.came = seen
            self._tell(self.last.progress(BROUGHT))
        self._hidden = seen if any(guard.waits(seen) for guard in self.guards) else None
        if self._hidden is not None:
            if isinstance(self.policy, Watching):
                self.policy.watch(seen)
            return None
        wanted = allowed = self.policy.decide(seen)
        for guard in self.guards:
            allowed = guard.allowed(allowed, seen)
        decision = Decision(seen, wanted, allowed.changes(seen))
        if not decision.done.is_nothing:
            self._act(decision)
        if decision.came_to_nothing and isinstance(self.policy, Insisting):
            self.policy.refused()
        if decision.came_to_nothing or not decision.done.is_nothing:
            self.decisions.append(decision)
            self._tell(decision.progress(DECISION))
        return decision

    def _act(self, decision: Decision) -> None:
        try:
            decision.disturbed = self.engine.apply(decision.done)
        except ActionRefusedError as error:
            decision.done, decision.refused = Action(reason=decision.done.reason), str(error)
            return
        for guard in self.guards:
            guard.acted(decision.time, decision.disturbed)
        self.last = decision

    def run(self, seconds: float, every: float) -> None:
        """Look every so many seconds, until so many are over or the engine has ended."""
        engine = cast(Timed, self.engine)
        while not engine.ended and seconds - engine.now > every * _ROUNDING:
            engine.advance(min(every, seconds - engine.now))
            if not engine.ended:
                self.look()


def _numbers(action: Action) -> dict[str, int | str]:
    """What an event has of an action: of worksets, which may be many thousands, how many."""
    worksets = {"moves": len(action.moves), "cuts": len(action.cuts)}
    some = {name: count for name, count in worksets.items() if count}
    return {**action.parallelism, **action.placement, **action.settings, **_routes(action), **some}


def _routes(action: Action) -> dict[str, str]:
    """Weights of routes in words."""
    return {" -> ".join(ends): ":".join(map(str, each)) for ends, each in action.weights.items()}


def require_shown(policy: Any, shows: frozenset[str], what: str, others: Sequence[str] = ()) -> None:
    """Raise OptionError where a policy needs what an engine cannot show; it names others that need less."""
    for needed in getattr(policy, "needs", ()):
        if needed not in shows:
            name = getattr(policy, "name", type(policy).__name__)
            has = ", ".join(sorted(shows)) or "nothing"
            instead = f". Take {' or '.join(map(repr, others))}" if others else ""
            why = f"{name} needs {SHOWN.get(needed, needed)}, which {what} cannot show (it shows: {has})"
            raise OptionError(f"{why}{instead}")

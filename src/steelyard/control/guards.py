"""What stands between a policy and an engine: how much may change, how often, and at what price.

A guard knows neither policies nor engines. What it takes away from an action it says in the action's reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from steelyard.core import OptionError
from steelyard.core.control import Action, Observation, for_all_joined


class Guard:
    """Allows everything, always: what guards do otherwise they say themselves."""

    def waits(self, seen: Observation) -> bool:
        """Whether nobody decides now; the policy is not even asked."""
        return False

    def allowed(self, action: Action, seen: Observation) -> Action:
        """What may be done of an action now."""
        return action

    def acted(self, time: float, disturbed: float) -> None:
        """Something was done, and disturbs the job for so many seconds."""


@dataclass(frozen=True)
class Bounds(Guard):
    """No fewer and no more of each operator. What bounds one bounds all that are joined with it.

    Parameters
    ----------
    least, most
        For each operator that has no numbers of its own.
    own
        Least and most by operator.

    Examples
    --------
    >>> Bounds(2, 8).allowed(Action({"map": 20, "count": 1}), Observation(0, 1)).parallelism
    {'map': 8, 'count': 2}
    """

    least: int = 1
    most: int = 1 << 20
    own: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for least, most in [(self.least, self.most), *self.own.values()]:
            if not 1 <= least <= most:
                raise OptionError(f"bounds are 1 <= least <= most, got {least} and {most}")

    def allowed(self, action: Action, seen: Observation) -> Action:
        """Numbers outside the bounds are brought inside."""
        wanted = dict(action.parallelism)
        for name, count in wanted.items():
            least, most = self._of(next((group for group in seen.joined if name in group), (name,)))
            wanted[name] = min(max(count, least), most)
        return _cut(action, wanted, "kept within its bounds")

    def _of(self, group: Sequence[str]) -> tuple[int, int]:
        """Bounds of operators that have one number: where several have their own, what all of them allow."""
        own = [self.own[name] for name in group if name in self.own] or [(self.least, self.most)]
        return max(least for least, _ in own), min(most for _, most in own)


@dataclass(frozen=True)
class LargestStep(Guard):
    """No more instances of an operator at once than so many more, or fewer, and not more that move.

    Parameters
    ----------
    up, down
        How many (Siachamis 2025, section 4: 15 up). None for as many as wanted.
    moves
        Instances that change their worker, or worksets of a similarity join that do or are cut: those that the policy
        names first. None for as many as wanted.

    Examples
    --------
    >>> allowed = LargestStep(moves=1).allowed(Action(placement={"map#0": 1, "map#1": 1}), Observation(0, 1))
    >>> allowed.placement, allowed.reason
    ({'map#0': 1}, '1 at once may move')
    """

    up: int | None = 15
    down: int | None = None
    moves: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("up", self.up), ("down", self.down), ("moves", self.moves)):
            if value is not None and value < 1:
                raise OptionError(f"{name} of LargestStep must be 1 or more, got {value}")

    def allowed(self, action: Action, seen: Observation) -> Action:
        """Each number as near to what is wanted as a step comes."""
        now = seen.parallelism
        wanted = dict(action.parallelism)
        for name, count in wanted.items():
            if name in now and self.up is not None:
                wanted[name] = min(count, now[name] + self.up)
            if name in now and self.down is not None:
                wanted[name] = max(wanted[name], now[name] - self.down)
        limits = [f"no more than {self.up}" if self.up else "", f"no fewer than {self.down}" if self.down else ""]
        stepped = _cut(action, wanted, f"{' and '.join(filter(None, limits))} at once")
        return stepped if self.moves is None else _first(stepped, seen, self.moves)


@dataclass(frozen=True)
class Cap(Guard):
    """No more instances of all operators together than there are workers (Siachamis 2025, section 4).

    Parameters
    ----------
    workers
        How many there are. Where more are wanted all get fewer, in proportion.
    fixed
        Operators whose numbers cannot change: the others make room.
    """

    workers: int
    fixed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise OptionError(f"workers of Cap must be 1 or more, got {self.workers}")

    def allowed(self, action: Action, seen: Observation) -> Action:
        """All numbers, those of operators that stay as they are too, squeezed until they fit."""
        if not action.parallelism:
            return action
        wanted = {**seen.parallelism, **for_all_joined(action.parallelism, seen.joined)}
        stay = {name: count for name, count in seen.parallelism.items() if name in self.fixed}
        others = {name: count for name, count in wanted.items() if name not in stay}
        cut = stay | squeezed(others, self.workers - sum(stay.values()))
        return _cut(action, cut, f"cut to fit {self.workers} workers", wanted)


@dataclass
class Cooldown(Guard):
    """After something was done, nobody decides for a while: what is seen then still comes from the change.

    Parameters
    ----------
    seconds
        From the moment on when the job goes on undisturbed (Siachamis 2025, section 4: 300).
    """

    seconds: float = 300.0

    def __post_init__(self) -> None:
        _require_seconds("Cooldown", self.seconds)
        self._until = 0.0

    def waits(self, seen: Observation) -> bool:
        """Whether it is too soon."""
        return seen.time < self._until

    def acted(self, time: float, disturbed: float) -> None:
        """From here on it is, for a while."""
        self._until = time + disturbed + self.seconds


@dataclass
class Dwell(Guard):
    """A wish must last: only what was wanted at every look for a while is done.

    It lets plans for worksets pass, of which each is made for the loads of its own moment.

    Parameters
    ----------
    seconds
        How long. Of several numbers that were wanted in that time, the one nearest to what there is now is taken; an
        instance moves that was always to go to the same worker.
    """

    seconds: float = 60.0

    def __post_init__(self) -> None:
        _require_seconds("Dwell", self.seconds)
        self._wishes: deque[tuple[float, Action]] = deque()
        self._since: float | None = None

    def allowed(self, action: Action, seen: Observation) -> Action:
        """Of each operator and instance what all wishes of the time agree on."""
        self._since = seen.time if self._since is None else self._since
        self._wishes.append((seen.time, action))
        while self._wishes[0][0] < seen.time - self.seconds:
            self._wishes.popleft()
        long = seen.time - self._since >= self.seconds
        wanted = dict(action.parallelism)
        for name in wanted.keys() & seen.parallelism.keys():
            have = seen.parallelism[name]
            wished = [one.parallelism.get(name, have) for _, one in self._wishes] if long else [have]
            wanted[name] = max(min(wished), have) if wanted[name] > have else min(max(wished), have)
        going = action.changes(seen).placement
        places = {
            name: worker
            for name, worker in going.items()
            if long and all(one.placement.get(name) == worker for _, one in self._wishes)
        }
        if dict(wanted) == dict(action.parallelism) and places == going:
            return action
        return _with(action, f"a wish must last {self.seconds:g} s", parallelism=wanted, placement=places)

    def acted(self, time: float, disturbed: float) -> None:
        """What was wished before a change says nothing of what is wished after it."""
        self._wishes.clear()
        self._since = None


@dataclass
class Budget(Guard):
    """Changes may disturb a job only for so long in a while.

    Parameters
    ----------
    seconds, per
        Of disturbance, in so many seconds.
    each
        What a change counts at least: a resident job cannot say beforehand for how long a move stops it.
    """

    seconds: float = 120.0
    per: float = 3600.0
    each: float = 0.0

    def __post_init__(self) -> None:
        for seconds in (self.seconds, self.per, self.each):
            _require_seconds("Budget", seconds)
        if self.each > self.seconds:
            raise OptionError(f"Budget of {self.seconds:g} s allows no change that counts {self.each:g} s: give more")
        self._spent: deque[tuple[float, float]] = deque()

    def allowed(self, action: Action, seen: Observation) -> Action:
        """Nothing, where the last change would take more than is left."""
        while self._spent and self._spent[0][0] <= seen.time - self.per:
            self._spent.popleft()
        spent = sum(seconds for _, seconds in self._spent)
        next_one = self._spent[-1][1] if self._spent else self.each
        if spent + next_one <= self.seconds:
            return action
        if action.changes(seen).is_nothing:
            return action
        why = f"{spent:g} s of the {self.seconds:g} s are spent for which changes may disturb the job"
        return _with(Action(reason=action.reason), why)

    def acted(self, time: float, disturbed: float) -> None:
        """So much is spent."""
        self._spent.append((time, max(disturbed, self.each)))


def squeezed(instances: Mapping[str, int], workers: int) -> dict[str, int]:
    """The same numbers, scaled down where there are more than `workers` in all; each operator keeps one at least.

    >>> squeezed({"a": 40, "b": 30, "c": 20}, workers=70)
    {'a': 31, 'b': 23, 'c': 16}
    """
    total, operators = sum(instances.values()), len(instances)
    if total <= workers:
        return dict(instances)
    if workers < operators:
        raise OptionError(f"{operators} operators need a worker each, and workers={workers}: allow more")
    share = (workers - operators) / (total - operators)
    cut = {name: 1 + round(share * (count - 1)) for name, count in instances.items()}
    while sum(cut.values()) != workers:
        largest = max(cut, key=lambda name: cut[name])
        cut[largest] += 1 if sum(cut.values()) < workers else -1
    return cut


def _cut(action: Action, wanted: Mapping[str, int], why: str, before: Mapping[str, int] | None = None) -> Action:
    """An action with other numbers; the reason says so where they are others."""
    if dict(wanted) == dict(action.parallelism if before is None else before):
        return action
    return _with(action, why, parallelism=wanted)


def _first(action: Action, seen: Observation, most: int) -> Action:
    """An action with the first of its moves."""
    changes, left = action.changes(seen), most
    kept: dict[str, Any] = {}
    for part in ("placement", "cuts", "moves"):
        kept[part] = dict(islice(getattr(changes, part).items(), left))
        left -= len(kept[part])
    if all(len(some) == len(getattr(changes, part)) for part, some in kept.items()):
        return action
    return _with(action, f"{most} at once may move", **kept)


def _with(action: Action, why: str, **parts: Any) -> Action:
    """An action with other parts, and one more reason."""
    return replace(action, reason="; ".join(filter(None, [action.reason, why])), **parts)


def _require_seconds(guard: str, seconds: float) -> None:
    if not seconds >= 0:
        raise OptionError(f"{guard} has seconds of 0 or more, got {seconds!r}")

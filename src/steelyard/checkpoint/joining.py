"""The half of `hybrid` beside an instance: it joins rounds, and waits only for what no log has."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from steelyard.checkpoint.history import ROUND
from steelyard.checkpoint.protocol import NOTHING, Beside, Place, Reaction

LATE, SPREAD = 1.25, 0.25
"""A clock of one's own waits so many intervals for a marker, and at most so many more: not all at one moment."""


def operator_of(instance: str) -> str:
    """The operator of an instance, `count` of `count#3`; for a chain of instances that of its first one.

    >>> operator_of("count#3"), operator_of("count")
    ('count', 'count')
    """
    return instance.rpartition("#")[0] or instance


class Joining(Beside):
    """Joins a round as soon as nothing would be lost: at the first marker, where all inputs are logged.

    Parameters
    ----------
    place
        Where it is.
    interval
        Seconds between two rounds.
    """

    def __init__(self, place: Place, interval: float) -> None:
        super().__init__(place)
        self._operator = operator_of(place.instance)
        self._ends = {
            one.number: {operator_of(one.sender), operator_of(one.receiver)} for one in (*place.inputs, *place.outputs)
        }
        self._plan: frozenset[str] | None = None
        """Uncoordinated operators, by the newest round that was taken; None before the first: everything is logged."""
        self._next_plan: frozenset[str] = frozenset()
        self._told = ""
        self._round = 0
        self._taken = True
        self._awaited: set[int] = set()
        self._came: set[int] = set()
        self._first = self._now = 0.0
        self._due = self._patience = self._interval = 0.0
        self.set_interval(interval)

    def set_interval(self, interval: float) -> None:
        """Also of the marker that is awaited."""
        share = zlib.crc32(self.place.instance.encode()) / 2**32
        before, self._patience = self._patience, interval * (LATE + SPREAD * share)
        self._interval, self._due = interval, self._due + self._patience - before

    def due(self, now: float) -> bool:
        """Whether it goes by its own clock, and has waited too long for a marker."""
        self._now = now
        return now >= self._due and self._plan is not None and self._operator in self._plan

    def overdue(self, now: float) -> tuple[int, str] | None:
        """Give up a round after an interval in which a logged input was held back.

        Its marker does not say that everybody before it has joined, as those of aligned inputs do: who has not may be
        waiting for room here, and the missing markers for him. What is lost is this round, not a message.
        """
        if self._taken or now - self._first < self._interval or self._came <= self._awaited:
            return None
        self.waited, self._taken, self._now = now - self._first, True, now
        return self._round, self._told

    def logs(self, wire: int) -> bool:
        """Whether one of its ends is uncoordinated."""
        return self._is_logged(wire, self._plan)

    def _is_logged(self, wire: int, plan: frozenset[str] | None) -> bool:
        return plan is None or not self._ends[wire].isdisjoint(plan)

    def on_round(self, number: int, now: float, plan: str) -> Reaction:
        """A source has nobody to wait for."""
        self._begin(number, now, plan)
        self.waited, self._taken = 0.0, True
        return Reaction(checkpoint=True)

    def on_marker(self, wire: int, number: int, now: float, plan: str) -> Reaction:
        """With the last marker of an aligned input take the checkpoint; hold this input back until then."""
        if number < self._round:  # the next round came over another input before
            return NOTHING
        if number > self._round:
            if self._round and len(self._came) < len(self.place.inputs):
                self.waited = now - self._first  # and more: some have not come yet
            self._begin(number, now, plan)
        self._came.add(wire)
        if len(self._came) == len(self.place.inputs):
            self.waited = now - self._first
        if self._taken:
            return NOTHING
        self._taken = self._awaited <= self._came
        return Reaction(block=not self._taken, checkpoint=self._taken)

    def _begin(self, number: int, now: float, plan: str) -> None:
        self._round, self._first, self._now, self._taken = number, now, now, False
        self._came = set()
        self._told, self._next_plan = plan, frozenset(filter(None, plan.split(",")))
        # A sender whose wire becomes logged in this round begins its log behind it.
        both = [self._plan, self._next_plan]
        self._awaited = {
            one.number for one in self.place.inputs if not all(self._is_logged(one.number, each) for each in both)
        }

    def took(self, kind: str) -> None:
        """The plan of a round holds from its checkpoint on."""
        if kind == ROUND:
            self._plan = self._next_plan
        self._due = self._now + self._patience

    def state(self) -> dict[str, Any]:
        """The plan."""
        return {"plan": None if self._plan is None else sorted(self._plan)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """That plan again."""
        plan = state.get("plan")
        self._plan = None if plan is None else frozenset(plan)

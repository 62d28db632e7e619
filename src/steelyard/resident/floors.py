"""How far event time came for each key, where instances that were not equally far are one now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.key_groups import KeyGroups
from steelyard.resident.keys import table_key_ids
from steelyard.resident.operator import MIN_WATERMARK, State
from steelyard.resident.shares import Share


@dataclass(frozen=True, eq=False)
class Floors:
    """Where event time was for keys when their instance became another.

    Parameters
    ----------
    times
        int64[n]: of keys by `hash mod n`; what ended there or before was given, and rows of it are late.

    Examples
    --------
    >>> Floors(np.array([5, 9])).of(pa.table({"k": [1, 2]}), ["k"]).tolist()
    [5, 9]
    """

    times: Ints

    def of(self, rows: pa.Table, keys: Sequence[str]) -> Ints:
        """int64[rows]: for the key of each row."""
        return np.asarray(self.times[np.mod(table_key_ids(rows, keys), len(self.times))])

    def above(self, watermark: int) -> Floors | None:
        """These, while event time has not come to the furthest of them."""
        return self if int(self.times.max()) > watermark else None

    @classmethod
    def restored(cls, state: State) -> Floors | None:
        """Those of a state, where it has some."""
        return cls(np.array(state["floors"], np.int64)) if "floors" in state else None


def times_joined(states: Mapping[int, State], before: KeyGroups) -> State:
    """The same where key groups come beside those that stay, each from the instance that had it.

    >>> times_joined({0: {"watermark": 5}, 1: {"watermark": 9}}, KeyGroups(4, 2))
    {'watermark': 5, 'floors': [5, 5, 9, 9]}
    >>> times_joined({0: {"watermark": 5}, 1: {"watermark": 5}}, KeyGroups(4, 2))
    {'watermark': 5}
    """
    floors = {giver: state.get("floors") or () for giver, state in states.items()}
    size = lcm(before.groups, *(len(one) for one in floors.values() if one))
    number = np.arange(size)
    owner = before.owners(number)
    least = min(state["watermark"] for state in states.values())
    times = np.full(size, least, np.int64)
    for giver, state in states.items():
        own = owner == giver
        known = np.array(floors[giver] or [MIN_WATERMARK], np.int64)
        times[own] = np.maximum(state["watermark"], known[number[own] % len(known)])
    made: dict[str, Any] = {"watermark": least}
    return made if (times == least).all() else {**made, "floors": times.tolist()}


def times_dealt(states: Sequence[State], share: Share) -> State:
    """How far event time is in a new instance: as far as in the old one that was furthest behind.

    That loses no row that would have been in time. Keys of instances that were further have a floor, so that none of
    their windows is given twice, and a row that was late for them stays late. While a job runs, instances that get
    their rows by hash from the same senders are equally far when all is at rest, and there are no floors; where they
    came to their end, each is as far as the last window that it gave.
    """
    known = [state for state in states if "watermark" in state]
    if not known:
        return {}
    marks = np.array([state.get("watermark", MIN_WATERMARK) for state in states], np.int64)
    floors = [state.get("floors") or () for state in states]
    size = lcm(share.before.groups, *(len(one) for one in floors if one))
    number = np.arange(size)
    owner = share.before.owners(number)
    times = marks[owner]
    for instance, one in enumerate(floors):
        if one:
            own = owner == instance
            times[own] = np.maximum(times[own], np.array(one, np.int64)[number[own] % len(one)])
    least = int(times.min())
    made: dict[str, Any] = {"watermark": least}
    return made if (times == least).all() else {**made, "floors": times.tolist()}

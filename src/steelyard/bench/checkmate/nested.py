"""Communication-induced checkpoints whose notes are nested maps, as in the published system."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from steelyard.checkpoint import Beside, CommunicationInduced, Place
from steelyard.checkpoint.communication_induced import Flags, Hmnr

REMEMBERED = 4_096
"""Notes that were opened."""


class NestedHmnr(Hmnr):
    """Decides as `Hmnr` does; what travels is larger, and slower to make and to read."""

    def __init__(self, place: Place, interval: float, clock: str = "") -> None:
        super().__init__(place, interval, clock)
        self._names = [name.rpartition("#")[::2] for name in place.instances]

    def _nested(self, values: Any) -> dict[str, dict[str, Any]]:
        maps: dict[str, dict[str, Any]] = {}
        for (operator, worker), value in zip(self._names, values.tolist(), strict=True):
            maps.setdefault(worker, {})[operator] = value
        return maps

    def _flat(self, maps: dict[str, dict[str, Any]], kind: Any) -> Any:
        return np.array([maps[worker][operator] for operator, worker in self._names], kind)

    def note(self, wire: int) -> bytes:
        """The clock, and a map of maps for each array."""
        self.sent_to[self._receiver[wire]] = True
        return pickle.dumps((self.clock, *map(self._nested, (self.ckpt, self.taken, self.greater))))

    def _opened(self, note: bytes) -> tuple[int, Any, Flags, Flags]:
        clock, ckpt, taken, greater = pickle.loads(note)
        return clock, self._flat(ckpt, np.uint32), self._flat(taken, np.bool_), self._flat(greater, np.bool_)


class Remembering(NestedHmnr):
    """The same, which makes a note once and opens it once for all: a simulation charges for each time in any case."""

    _read: ClassVar[OrderedDict[tuple[bytes, int], tuple[int, Any, Flags, Flags]]] = OrderedDict()

    def __init__(self, place: Place, interval: float, clock: str = "") -> None:
        super().__init__(place, interval, clock)
        self._made: bytes | None = None
        self._order = hash(place.instances)

    def note(self, wire: int) -> bytes:
        """What it was the last time, where nothing has happened since."""
        if self._made is None:
            self._made = super().note(wire)
        self.sent_to[self._receiver[wire]] = True
        return self._made

    def _opened(self, note: bytes) -> tuple[int, Any, Flags, Flags]:
        key = note, self._order
        if key not in self._read:
            self._read[key] = super()._opened(note)
            if len(self._read) > REMEMBERED:
                self._read.popitem(last=False)
        return self._read[key]

    def took(self, kind: str) -> None:
        """There will be another note."""
        self._made = None
        super().took(kind)

    def learn(self, wire: int, note: bytes) -> None:
        """There will be another note."""
        self._made = None
        super().learn(wire, note)

    def restore(self, state: Mapping[str, Any]) -> None:
        """There will be another note."""
        self._made = None
        super().restore(state)


@dataclass(frozen=True)
class NestedMaps(CommunicationInduced):
    """HMNR with notes as large as the published ones."""

    name: ClassVar[str] = "communication_induced with nested maps"

    def beside(self, place: Place) -> Beside:
        """Decides as HMNR does."""
        return Remembering(place, self.interval_of(place), self.clock_of(place))

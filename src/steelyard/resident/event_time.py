"""How far event time has come in the inputs of an instance, and in the instance itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK


class EventTime:
    """What counts is the input that is furthest behind. When the last one has ended, that is the furthest of all.

    Parameters
    ----------
    names
        The inputs whose time counts, each with a name that holds also where channels have other numbers.

    Examples
    --------
    >>> time = EventTime({0: "left", 1: "right"})
    >>> list(time.input_reached(0, 7)), list(time.input_reached(1, 5)), list(time.input_reached(1, 9))
    ([], [5], [7])
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._times = dict.fromkeys(names, MIN_WATERMARK)
        self._came_to = dict(self._times)
        """Where event time is in each input, or was when it ended."""
        self.watermark = MIN_WATERMARK
        """Where the instance is; at the end, `MAX_WATERMARK`."""
        self.newest = MIN_WATERMARK
        """The last watermark that is a time, and not the end."""

    def input_reached(self, channel: int, reached: int) -> Iterator[int]:
        """An input has come so far; gives where the instance comes to by that, one after the other."""
        if channel not in self._times:
            return
        self._times[channel] = max(self._times[channel], reached)
        if reached < MAX_WATERMARK:
            self._came_to[channel] = self._times[channel]
        behind = min(self._times.values())
        if behind == MAX_WATERMARK:  # nobody is behind any more: it first comes to where the furthest was
            yield from self._further(max(self._came_to.values()))
        yield from self._further(behind)

    def _further(self, reached: int) -> Iterator[int]:
        if reached > self.watermark:
            yield reached

    def advance(self, watermark: int) -> bool:
        """The instance has come so far; whether it was not there before."""
        if watermark <= self.watermark:
            return False
        self.watermark = watermark
        if watermark < MAX_WATERMARK:  # the end is no time that anybody wants to read, or to go on from
            self.newest = watermark
        return True

    def among(self, names: Mapping[int, str]) -> EventTime:
        """The same instance with other inputs: those that are new have not come anywhere.

        >>> time = EventTime({0: "left"})
        >>> [time.advance(at) for at in time.input_reached(0, 7)]
        [True]
        >>> other = time.among({5: "left", 6: "right"})
        >>> other.watermark, list(other.input_reached(6, 8)), list(other.input_reached(5, 9))
        (7, [], [8])
        """
        made = EventTime(names)
        made.restore(self.state())
        made.watermark, made.newest = self.watermark, self.newest
        return made

    def state(self) -> dict[str, Any]:
        """As plain values."""
        times = sorted(((self._names[one], at) for one, at in self._came_to.items()), key=lambda one: -one[1])
        return {"watermark": self.newest, "times": times}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there. An input that had ended ends once more, or its source has got new rows meanwhile."""
        self.newest = state.get("watermark", MIN_WATERMARK)
        self.watermark = MIN_WATERMARK if state.get("tell") else self.newest  # it is told once more, first of all
        times = dict(map(tuple, state.get("times", ())))  # of two inputs of one name the one that is behind
        came = {number: times.get(name, MAX_WATERMARK) for number, name in self._names.items()}
        known = {number: at for number, at in came.items() if at < MAX_WATERMARK}
        self._times.update(known)
        self._came_to.update(known)

"""Uncoordinated checkpoints: every instance by its own clock; senders keep a log, receivers drop what comes twice."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

from steelyard.checkpoint.protocol import Beside, CheckpointProtocol, Place, require_interval
from steelyard.core import OptionError


class OwnTimer(Beside):
    """Takes a checkpoint every so often, wherever the others are.

    Parameters
    ----------
    place
        Where it is.
    interval
        Seconds between two checkpoints.
    clock
        Whose timer it is: those of one name fire together.
    """

    def __init__(self, place: Place, interval: float, clock: str = "") -> None:
        super().__init__(place)
        self._interval = interval
        # Instances begin at different moments of the first interval: else all would write at once for ever.
        share = zlib.crc32((clock or place.instance).encode()) / 2**32
        self._next = interval * (0.5 + 0.5 * share)

    def due(self, now: float) -> bool:
        """Whether so long has passed since the last one of its own."""
        if now < self._next:
            return False
        self._next = now + self._interval
        return True

    def set_interval(self, interval: float) -> None:
        """Also of the checkpoint that is awaited."""
        self._next += interval - self._interval
        self._interval = interval


@dataclass(frozen=True)
class Uncoordinated(CheckpointProtocol):
    """Let every instance take checkpoints by its own clock, and find a line of them when one is needed.

    Every instance takes part, those without state too: without the numbers of its messages no line could be found.

    Parameters
    ----------
    interval
        Seconds between two checkpoints of an instance.
    intervals
        Other intervals of some operators, as in `"count:2,join:0.5"`; for a chain of instances that of its first one.
    logged
        Whether senders keep what they sent. Without it rows that were under way are lost: at most once.
    deduplicates
        Whether receivers drop what they have processed before. Without it some rows count twice: at least once.
    together
        Whether instances of the same number, which are on one worker where all operators have as many, go by one clock.

    Examples
    --------
    >>> Uncoordinated(logged=False).guarantee, Uncoordinated(deduplicates=False).guarantee, Uncoordinated().guarantee
    ('at most once', 'at least once', 'exactly once')
    """

    interval: float = 5.0
    intervals: str = ""
    logged: bool = True
    deduplicates: bool = True
    together: bool = False
    name: ClassVar[str] = "uncoordinated"
    timers: ClassVar[bool] = True
    paper: ClassVar[str] = "Siachamis 2025, section 3"

    def __post_init__(self) -> None:
        for seconds in (self.interval, *self._of_operators().values()):
            require_interval(self.name, seconds)

    def _of_operators(self) -> dict[str, float]:
        found = {}
        for part in filter(None, self.intervals.split(",")):
            operator, _, seconds = part.rpartition(":")
            try:
                found[operator] = float(seconds)
            except ValueError:
                raise OptionError(
                    f"intervals of {self.name} are seconds by operator, as in 'count:2,join:0.5', got {part!r}"
                ) from None
        return found

    @property
    def guarantee(self) -> str:
        """How often a row counts after a failure."""
        if not self.logged:
            return "at most once"
        return "exactly once" if self.deduplicates else "at least once"

    def beside(self, place: Place) -> Beside:
        """Goes by a timer of its own."""
        return OwnTimer(place, self.interval_of(place), self.clock_of(place))

    def interval_of(self, place: Place) -> float:
        """That of its operator, where it has one of its own."""
        return self._of_operators().get(place.instance.rpartition("#")[0], self.interval)

    def clock_of(self, place: Place) -> str:
        """The name of an instance's timer."""
        return place.instance.rpartition("#")[2] if self.together else place.instance

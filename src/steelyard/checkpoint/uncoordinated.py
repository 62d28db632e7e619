"""Uncoordinated checkpoints: every instance by its own clock; senders keep a log, receivers drop what comes twice."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
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
    """

    def __init__(self, place: Place, interval: float) -> None:
        super().__init__(place)
        self._interval = interval
        # Instances begin at different moments of the first interval: else all would write at once for ever.
        share = zlib.crc32(place.instance.encode()) / 2**32
        self._next = interval * (0.5 + 0.5 * share)

    def due(self, now: float) -> bool:
        """Whether so long has passed since the last one of its own."""
        if now < self._next:
            return False
        self._next = now + self._interval
        return True


@dataclass(frozen=True)
class Uncoordinated(CheckpointProtocol):
    """Let every instance take checkpoints by its own clock, and find a line of them when one is needed.

    Every instance takes part, those without state too: without the numbers of its messages no line could be found.

    Parameters
    ----------
    interval
        Seconds between two checkpoints of an instance.
    intervals
        By operator: another interval.
    logged
        Whether senders keep what they sent. Without it rows that were under way are lost: at most once.
    deduplicates
        Whether receivers drop what they have processed before. Without it some rows count twice: at least once.

    Examples
    --------
    >>> Uncoordinated(logged=False).guarantee, Uncoordinated(deduplicates=False).guarantee, Uncoordinated().guarantee
    ('at most once', 'at least once', 'exactly once')
    """

    interval: float = 5.0
    intervals: Mapping[str, float] | None = None
    logged: bool = True
    deduplicates: bool = True
    name: ClassVar[str] = "uncoordinated"
    paper: ClassVar[str] = "Siachamis 2025, section 3"

    def __post_init__(self) -> None:
        if not isinstance(self.intervals, Mapping | None):
            raise OptionError(f"intervals of {self.name} is a dictionary by operator, got {self.intervals!r}")
        for seconds in (self.interval, *(self.intervals or {}).values()):
            require_interval(self.name, seconds)

    @property
    def guarantee(self) -> str:
        """How often a row counts after a failure."""
        if not self.logged:
            return "at most once"
        return "exactly once" if self.deduplicates else "at least once"

    def beside(self, place: Place) -> Beside:
        """Goes by a timer of its own."""
        return OwnTimer(place, self.interval_of(place))

    def interval_of(self, place: Place) -> float:
        """Seconds between two checkpoints of an instance."""
        return (self.intervals or {}).get(place.instance.rpartition("#")[0], self.interval)

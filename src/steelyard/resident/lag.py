"""How far a reader is behind the end of what it reads, in rows and in seconds."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_MOST = 512
"""Ends that are remembered; of more, every other one is forgotten."""


class Behind(NamedTuple):
    """How far a reader is behind."""

    arrived: int
    """Rows that came since the first look."""
    end: int
    """Where the log ends."""
    lag: int
    """Rows that came and are not read."""
    seconds: float
    """How long the oldest of them waits, as far as was seen."""


class LagMeter:
    """Remembers when the end of a log was where, and so knows since when a row waits.

    Rows are taken to have come evenly between two looks; those that were there at the first look, at that moment.

    Examples
    --------
    >>> meter = LagMeter()
    >>> meter.look(100, 0, 1.0)
    Behind(arrived=0, end=100, lag=100, seconds=0.0)
    >>> meter.look(200, 150, 3.0)
    Behind(arrived=100, end=200, lag=50, seconds=1.0)
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()
        self._first: int | None = None

    def look(self, end: int, offset: int, moment: float) -> Behind:
        """The log ends there now, and is read up to this offset."""
        self._first = end if self._first is None else self._first
        self._ends.append((moment, end))
        while len(self._ends) > 1 and self._ends[1][1] <= offset:
            self._ends.popleft()
        if len(self._ends) > _MOST:
            newest = self._ends.pop()
            self._ends = deque([*list(self._ends)[::2], newest])
        lag = max(end - offset, 0)
        return Behind(end - self._first, end, lag, moment - self._came(offset) if lag else 0.0)

    def _came(self, offset: int) -> float:
        """When the row at this offset came."""
        (begun, before), *later = self._ends
        if before > offset or not later:
            return begun
        until, after = later[0]
        return begun + (offset - before) / max(after - before, 1) * (until - begun)

"""Early Batch Release: a batch is closed a little before its heartbeat, so that its blocks are ready on time.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, section 2.4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from steelyard.core import OptionError
from steelyard.core.counts import Ints

MOST_SLACK = 0.05
"""The share of the interval that suffices for partitioning (section 2.4.2)."""
MARGIN = 1.2
"""Slack over the partitioning time that is expected."""
SMOOTHING = 0.25
"""Weight of the last batch in the moving mean of partitioning times."""


@dataclass(frozen=True)
class Release:
    """How the release of one batch went. Times are in seconds, from the start of the stream.

    Parameters
    ----------
    batch
        Its number, from 0.
    cut_off
        When it was closed and partitioning began.
    heartbeat
        When its blocks were wanted.
    ready
        When its blocks were there.
    """

    batch: int
    cut_off: float
    heartbeat: float
    ready: float

    @property
    def overrun(self) -> float:
        """How long processing had to wait for the blocks."""
        return max(0.0, self.ready - self.heartbeat)

    @property
    def missed(self) -> bool:
        """Whether the blocks came after the heartbeat."""
        return self.overrun > 0

    def processing(self, work: float) -> float:
        """The processing time of the batch, of which the wait for its blocks is a part."""
        return self.overrun + work


class EarlyRelease:
    """Decides when batches are closed, and keeps account of how that went. It has no clock: it is told.

    Batch x takes rows up to `(x + 1) * interval - slack` and is due at the heartbeat `(x + 1) * interval`.
    Slack is `min(most * interval, margin * EWMA of partitioning times)`; the first batch has the most.

    Parameters
    ----------
    interval
        Time between heartbeats, in seconds.
    most
        The largest slack, as a share of the interval.
    margin
        Slack over the expected partitioning time.
    smoothing
        Weight of the last batch in what is expected, in (0, 1].

    Examples
    --------
    >>> early = EarlyRelease(interval=1.0)
    >>> early.cut_off(0)
    0.95
    >>> early.released(partition_seconds=0.02)
    Release(batch=0, cut_off=0.95, heartbeat=1.0, ready=0.97)
    >>> round(early.cut_off(1), 3)
    1.976
    >>> early.released(partition_seconds=0.04).missed, early.misses
    (True, 1)
    """

    def __init__(
        self, interval: float, most: float = MOST_SLACK, margin: float = MARGIN, smoothing: float = SMOOTHING
    ) -> None:
        for option, value, right, want in (
            ("interval", interval, interval > 0, "more than 0 seconds"),
            ("most", most, 0 <= most < 1, "a share of the interval, 0 or more and below 1"),
            ("margin", margin, margin >= 1, "1 or more"),
            ("smoothing", smoothing, 0 < smoothing <= 1, "above 0, at most 1"),
        ):
            if not right:
                raise OptionError(f"{option} of the early release must be {want}, got {value}")
        self.interval = interval
        self.most = most
        self.margin = margin
        self.smoothing = smoothing
        self.batch = 0
        """The batch that is open: all before it are released."""
        self.misses = 0
        """Batches whose blocks came after their heartbeat."""
        self.overrun_seconds = 0.0
        """How long processing waited for blocks, over all batches."""
        self.expected: float | None = None
        """The moving mean of partitioning times; None before the first."""

    @property
    def slack(self) -> float:
        """What lies between cut-off and heartbeat of the open batch, in seconds."""
        most = self.most * self.interval
        return most if self.expected is None else min(most, self.margin * self.expected)

    def heartbeat(self, batch: int) -> float:
        """When processing of a batch is to begin."""
        return (batch + 1) * self.interval

    def cut_off(self, batch: int) -> float:
        """When a batch is closed: certain for the open one, a forecast for later ones."""
        if batch < self.batch:
            raise ValueError(f"batch {batch} is released: the open batch is {self.batch}")
        return self.heartbeat(batch) - self.slack

    def released(self, partition_seconds: float) -> Release:
        """The open batch was partitioned, in so many seconds from its cut-off; the next one is open."""
        if partition_seconds < 0:
            raise ValueError(f"partitioning cannot have taken {partition_seconds} seconds")
        cut_off = self.cut_off(self.batch)
        release = Release(self.batch, cut_off, self.heartbeat(self.batch), cut_off + partition_seconds)
        self.misses += release.missed
        self.overrun_seconds += release.overrun
        before = partition_seconds if self.expected is None else self.expected
        self.expected = before + self.smoothing * (partition_seconds - before)
        self.batch += 1
        return release


class Closed(NamedTuple):
    """The rows of a batch that was closed: those that arrived in [start, end)."""

    batch: int
    start: int
    end: int
    keys: Ints
    times: Ints


class DoubleBuffer:
    """Keeps the rows of the open batch apart from those that came after its cut-off, which are the next one's.

    Rows may be given in parts of any size, also while the closed batch is partitioned. Those behind the
    cut-off wait until the next one is known, so that each row is in one batch, whatever the slacks are.

    Parameters
    ----------
    early
        Says where batches end.
    per_second
        Unit of the rows' times: 1000 for milliseconds.

    Examples
    --------
    >>> early = EarlyRelease(interval=1.0)
    >>> buffer = DoubleBuffer(early)
    >>> buffer.add(np.array([7, 8, 9]), np.array([100, 949, 950]))
    >>> buffer.close().keys.tolist(), early.released(0.01).missed
    ([7, 8], False)
    >>> buffer.close().keys.tolist()
    [9]
    """

    def __init__(self, early: EarlyRelease, per_second: int = 1000) -> None:
        if per_second < 1:
            raise OptionError(f"per_second must be 1 or more, got {per_second}")
        self.early = early
        self.per_second = per_second
        self._start = 0
        self._batch = early.batch
        self._keys: list[Ints] = []
        self._times: list[Ints] = []
        self._latest: int | None = None

    @property
    def end(self) -> int:
        """The cut-off of the open batch, in the unit of the rows' times. Rows of this time are the next one's."""
        return round(self.early.cut_off(self._batch) * self.per_second)

    def add(self, keys: Ints, times: Ints) -> None:
        """Rows in order of arrival. A time that falls is a ValueError: it could be of a closed batch."""
        if len(keys) != len(times):
            raise ValueError(f"rows have one key and one time each: {len(keys)} keys, {len(times)} times")
        if not len(times):
            return
        latest = self._start if self._latest is None else self._latest
        if times[0] < latest or np.any(np.diff(times) < 0):
            raise ValueError(f"arrival times never fall, and the last one was {latest}")
        self._latest = int(times[-1])
        self._keys.append(np.array(keys, dtype=np.int64))
        self._times.append(np.array(times, dtype=np.int64))

    def close(self) -> Closed:
        """The rows of the open batch; what came after its cut-off is kept. Then the early release is told."""
        if self._batch > self.early.batch:
            raise ValueError(f"batch {self.early.batch} is closed and not yet released: call released() first")
        end = self.end
        keys = np.concatenate([np.empty(0, np.int64), *self._keys])
        times = np.concatenate([np.empty(0, np.int64), *self._times])
        cut = int(np.searchsorted(times, end, side="left"))
        closed = Closed(self._batch, self._start, end, keys[:cut], times[:cut])
        self._keys, self._times = [keys[cut:].copy()], [times[cut:].copy()]
        self._start, self._batch = end, self._batch + 1
        self._latest = end if self._latest is None else max(end, self._latest)
        return closed

    @property
    def waiting(self) -> int:
        """Rows that are in no closed batch yet."""
        return sum(map(len, self._times))

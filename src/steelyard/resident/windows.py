"""Windows of event time, made of panes: the longest spans that size and slide are multiples of; and sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.core.durations import micros

START, END = "window_start", "window_end"
"""Columns that windowed operators give."""
PAIRS = 1 << 18
"""Of a row and a window that are looked at together, unless a single window has more rows."""


@dataclass(frozen=True)
class Window:
    """Windows of `size` microseconds, one every `slide`, over a column of event times.

    Examples
    --------
    >>> window = Window.of("time", "1 minute", "20 seconds")
    >>> window.size, window.slide, window.pane
    (60000000, 20000000, 20000000)
    >>> Window("time", 4, 2).starts(np.array([3]))
    (array([0, 0]), array([2, 0]))
    """

    time: str
    size: int
    slide: int

    def __post_init__(self) -> None:
        if not 0 < self.slide <= self.size:
            raise OptionError(f"slide must be above 0 and at most the window of {self.size} us, got {self.slide} us")

    @classmethod
    def of(cls, time: str, size: str, slide: str | None = None) -> Window:
        """From durations as text; without a slide windows do not overlap."""
        length = micros(size, "window")
        return cls(time, length, length if slide is None else micros(slide, "slide"))

    @property
    def pane(self) -> int:
        """Length of a pane."""
        return gcd(self.size, self.slide)

    def last_end(self, time: Any) -> Any:
        """The end of the last window that holds a time: behind it, the time is never needed again."""
        return time - time % self.slide + self.size

    def first_end(self, time: int) -> int:
        """The end of the first window that holds a time."""
        return (time - self.size) // self.slide * self.slide + self.slide + self.size

    def starts(self, times: Ints) -> tuple[Ints, Ints]:
        """(row, window's start) for each row and each window that holds its time."""
        latest = times - times % self.slide
        offsets = np.arange(0, self.size, self.slide)
        starts = latest[:, None] - offsets[None, :]
        rows, which = np.nonzero(starts + self.size > times[:, None])
        return rows, starts[rows, which]

    def closing(self, panes: Ints, before: int, time: int) -> Iterator[tuple[Ints, Ints]]:
        """(row, window's start) for each row and each window that holds its pane and ends in `(before, time]`.

        They come in parts of some `PAIRS`, so that memory does not grow with the windows that a row is in; all rows of
        a window are in one part.
        """
        if not len(panes):
            return
        order = np.argsort(panes, kind="stable")
        first, last = (panes[order] - self.size) // self.slide + 1, panes[order] // self.slide  # windows by number
        low = np.maximum(first, max(int(first[0]), (before - self.size) // self.slide + 1))
        high = np.minimum(last, min(int(last[-1]), (time - self.size) // self.slide))
        some = low <= high
        order, low, high = order[some], low[some], high[some]
        at = 0
        while at < len(order):
            begin = int(low[at])
            most = max(at + PAIRS + 1, int(np.searchsorted(low, begin + 1)))  # no part has more rows
            end = _part_end(low[at:most], high[at:most], begin)
            upto = int(np.searchsorted(low, end))
            begins = np.maximum(low[at:upto], begin)
            counts = np.minimum(high[at:upto], end - 1) - begins + 1
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            yield np.repeat(order[at:upto], counts), (np.repeat(begins, counts) + within) * self.slide
            at = int(np.searchsorted(high, end))
            low = np.maximum(low, end)

    def require(self, schema: pa.Schema) -> pa.Field:
        """The time column; OptionError where there is none, or it is no timestamp."""
        if self.time not in schema.names:
            raise OptionError.unknown("time column", self.time, schema.names)
        column = schema.field(self.time)
        if not pa.types.is_timestamp(column.type):
            raise OptionError(f"time column {self.time!r} must be a timestamp, and is {column.type}")
        return column

    def pane_type(self, schema: pa.Schema) -> pa.DataType:
        """The type of panes and of windows' bounds: microseconds, in the time zone of the time column."""
        return pa.timestamp("us", self.require(schema).type.tz)


@dataclass(frozen=True)
class Session(Window):
    """Sessions: rows of a key that follow each other by `size` microseconds or less, as in Spark's `session_window`.

    A pane is as long as the gap, so that all rows of a key in one pane are of one session.

    Examples
    --------
    >>> session = Session.of("time", "10 seconds")
    >>> session.pane, session.last_end(0)
    (10000000, 10000001)
    """

    @property
    def gap(self) -> int:
        """The longest time between two rows of a session."""
        return self.size

    def last_end(self, time: Any) -> Any:
        """When the session of a row at `time` is over: a row that comes exactly one gap later is still of it."""
        return time + self.gap + 1

    def begins(self, keys: Ints, first: Ints, last: Ints) -> Ints:
        """The begin of the session that each part is in; parts have rows of a key from `first` to `last`.

        >>> Session("time", 10, 10).begins(np.array([0, 0, 0, 1]), np.array([35, 0, 10, 0]), np.array([35, 9, 24, 0]))
        array([35,  0,  0,  0])
        """
        if not len(keys):
            return first
        order = np.lexsort((first, keys))
        key, begin = keys[order], first[order]
        ends, rank = np.unique(last[order], return_inverse=True)
        # The latest end so far of each key: its rank, above all ranks of the keys before.
        above = np.unique(key, return_inverse=True)[1] * len(ends)
        latest = ends[np.maximum.accumulate(rank + above) - above]
        is_new = np.ones(len(key), np.bool_)
        is_new[1:] = (key[1:] != key[:-1]) | (begin[1:] > latest[:-1] + self.gap)
        found = np.empty_like(first)
        found[order] = begin[np.flatnonzero(is_new)][np.cumsum(is_new) - 1]
        return found


def _part_end(low: Ints, high: Ints, begin: int) -> int:
    """The window behind the last one of a part that begins with `begin`, where row i is in `low[i]` to `high[i]`.

    Both are ascending, and none of `high` is below `begin`.
    """
    whole, lows = (np.concatenate([[0], np.cumsum(part)]) for part in (high - low + 1, low - begin))

    def pairs(end: int) -> int:
        """Rows of each window before `end`, added up."""
        over, begun = np.searchsorted(high, end), np.searchsorted(low, end)
        return int(whole[over] + (begun - over) * (end - begin) - (lows[begun] - lows[over]))

    least, most = begin + 1, int(high[-1]) + 1
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if pairs(middle) <= PAIRS else (least, middle - 1)
    return least


def as_micros(column: pa.Array) -> Ints:
    """Timestamps without nulls as int64 microseconds since 1970; of nanoseconds, those that are complete."""
    if column.type.unit == "ns":
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False)) // 1000
    unit = pa.timestamp("us", column.type.tz)
    exact = column if column.type == unit else column.cast(unit, safe=False)
    return np.asarray(exact.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def timely(batch: pa.RecordBatch, window: Window, watermark: int) -> tuple[pa.RecordBatch, Ints]:
    """Rows that some open window holds, and their times; those without a time, or too late, are left out."""
    column = batch.column(window.time)
    if column.null_count:
        batch = batch.filter(column.is_valid())
        column = batch.column(window.time)
    times = as_micros(column)
    kept = window.last_end(times) > watermark
    if kept.all():
        return batch, times
    return batch.filter(pa.array(kept)), times[kept]

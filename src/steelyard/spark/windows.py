"""Windows from panes: which ones close when the watermark moves, and their results."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from steelyard.spark.partials import START, Partials
from steelyard.spark.program import Window
from steelyard.spark.rows import PANE, quoted


@dataclass(frozen=True)
class Span:
    """Panes from `first` to `last`, both included."""

    first: int
    last: int

    def joined(self, other: Span | None) -> Span:
        """The smallest span that holds both."""
        return self if other is None else Span(min(self.first, other.first), max(self.last, other.last))


def closing(window: Window, panes: Span, before: int, now: int) -> range:
    """Starts of the windows over `panes` that end after `before`, and at `now` or earlier, in microseconds.

    >>> minute = Window(size=60, slide=20)
    >>> list(closing(minute, Span(0, 5), before=60, now=110))
    [20, 40]
    """
    earliest = max(panes.first * window.pane - window.size + 1, before - window.size + 1)
    latest = min(panes.last * window.pane, now - window.size)
    first = -(-earliest // window.slide) * window.slide
    return range(first, latest + 1, window.slide)


def last_end(window: Window, pane: int) -> int:
    """The end of the last window that holds a pane: when the watermark is there, the pane is never read again."""
    start = pane * window.pane
    return start - start % window.slide + window.size


def by_window(partials: DataFrame, window: Window) -> DataFrame:
    """Each partial once for every window that its pane is in, with the window's start."""
    pane_start = F.col(PANE) * F.lit(window.pane)
    if window.panes == 1:
        return partials.withColumn(START, pane_start)
    last = pane_start - F.pmod(pane_start, F.lit(window.slide))
    ended = pane_start - F.lit(window.size)  # a window that starts here ends where the pane begins
    first = ended - F.pmod(ended, F.lit(window.slide)) + F.lit(window.slide)
    return partials.withColumn(START, F.explode(F.sequence(first, last, F.lit(window.slide).cast("bigint"))))


def merged_windows(partials: DataFrame, how: Partials, only: Column | None) -> DataFrame:
    """Merged states of each key and window (of each key, where there are no windows), filtered by `only`."""
    keys = [quoted(key) for key in how.program.keys]
    if how.program.window is None:
        return how.merged(partials, keys)
    spread = by_window(partials, how.program.window)
    return how.merged(spread if only is None else spread.where(only), [*keys, F.col(START)])


def between(starts: range) -> Column:
    """Whether a window's start is among `starts`."""
    return (F.col(START) >= starts[0]) & (F.col(START) <= starts[-1])

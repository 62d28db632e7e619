"""Windows from panes: which ones close when the watermark moves, and their results."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from steelyard.core.hidden import FIRST, LAST, PANE, START
from steelyard.spark.columns import changing
from steelyard.spark.partials import Partials
from steelyard.spark.program import Session, Window
from steelyard.spark.rows import quoted


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


def first_open(window: Window, watermark: int) -> int:
    """The first pane of which `last_end` is behind the watermark.

    >>> first_open(Window(60, 10), 125), last_end(Window(60, 10), 6), last_end(Window(60, 10), 7)
    (7, 120, 130)
    """
    # the first start of a window, a multiple of the slide, with start + size > watermark
    start = ((watermark - window.size) // window.slide + 1) * window.slide
    return start // window.pane


def by_window(partials: DataFrame, window: Window) -> DataFrame:
    """Each partial once for every window that its pane is in, with the window's start."""
    start = f"{PANE} * {window.pane}L"
    if window.panes == 1:
        return partials.selectExpr("*", f"{start} as {START}")
    last = f"{start} - pmod({start}, {window.slide}L)"
    ended = f"({start} - {window.size}L)"  # a window that starts here ends where the pane begins
    first = f"{ended} - pmod({ended}, {window.slide}L) + {window.slide}L"
    return partials.selectExpr("*", f"explode(sequence({first}, {last}, {window.slide}L)) as {START}")


def merged_windows(partials: DataFrame, how: Partials, only: Column | None) -> DataFrame:
    """Merged states of each key and window (of each key, where there are no windows), filtered by `only`."""
    if how.program.window is None:
        return how.merged(partials, how.by_key)
    if isinstance(how.program.window, Session):
        found = _merged_sessions(partials, how, how.program.window.gap)
        return found if only is None else found.where(only)
    spread = by_window(partials, how.program.window)
    return how.merged(spread if only is None else spread.where(only), how.by_window)


def _merged_sessions(partials: DataFrame, how: Partials, gap: int) -> DataFrame:
    """Merged states of each key and session: partials in order of their first rows, cut where none is near."""
    keys = [quoted(key) for key in how.program.keys]
    in_order = Over.partitionBy(*keys).orderBy(FIRST)
    before = F.max(LAST).over(in_order.rowsBetween(Over.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col(FIRST) > before + gap), F.col(FIRST))
    parts = how.merged(partials, how.by_pane).withColumn(START, begins)
    return how.merged(parts.withColumn(START, F.max(START).over(in_order)), how.by_window)


def with_states(sessions: DataFrame, how: Partials) -> DataFrame:
    """Without sessions of rows that Python aggregates refused: they have bounds, which the JVM finds, and no states."""
    if how.program.session is None or how.program.builtins:
        return sessions
    return sessions.where(F.size(quoted(next(iter(how.program.pythons)))) > 0)


def of_sessions(merged: DataFrame, how: Partials) -> DataFrame:
    """Merged states of sessions as partials of the log, in the panes of their first rows."""
    assert how.program.session is not None
    pane = f"({FIRST} - pmod({FIRST}, {how.program.session.gap}L)) div {how.program.session.gap}L"
    return how.compacted(merged.withColumn(PANE, F.expr(pane)))


def is_over(session: Session, watermark: int) -> Column:
    """Whether no row in time can be of a session any more: also one that comes a gap later is of it."""
    return F.expr(f"{LAST} + {session.gap}L < {changing(watermark, LAST)}")


def between(starts: range) -> Column:
    """Whether a window's start is among `starts`."""
    return F.expr(f"{START} >= {changing(starts[0], START)} and {START} <= {changing(starts[-1], START)}")


def ends_after(window: Window, watermark: int) -> Column:
    """Whether a window is still open."""
    return F.expr(f"{START} + {window.size}L > {changing(watermark, START)}")

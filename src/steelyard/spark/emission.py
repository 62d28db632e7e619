"""Windows out of the log: which close, what they are made of, what the log still needs afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from steelyard.core.hidden import BAD, BAD_ROW, NEW, PANE, START
from steelyard.spark.partial_log import PartialLog
from steelyard.spark.partials import Partials
from steelyard.spark.program import Session, Window
from steelyard.spark.rows import quoted
from steelyard.spark.sinks import Sink
from steelyard.spark.state import Commit, LogFolder, Running, StateFolder
from steelyard.spark.windows import (
    Span,
    between,
    closing,
    ends_after,
    first_open,
    is_over,
    last_end,
    merged_windows,
    of_sessions,
    with_states,
)

COMPACT_AFTER = 24
"""Folders in the log before some are merged into one."""
LARGER = 2
"""A folder that has more than so many times the partials of all newer ones together is left as it is: what is merged
again and again is then in proportion to what is new."""
ALIKE = 1_000
"""Partials of a folder below which it counts as having so many."""


@dataclass(frozen=True)
class Emission:
    """Gives the sink what a batch's commit makes due, and keeps the log short.

    Parameters
    ----------
    partials
        The program's states: how to merge and finish them.
    state
        Where the states of sliding windows live.
    log
        The log of partials.
    sink
        Where results go.
    mode
        Output mode: `"append"`, `"update"` or `"complete"`.
    inverse_from
        Panes of a window from which on it is made from the one before, where that is exact.
    """

    partials: Partials
    state: StateFolder
    log: PartialLog
    sink: Sink
    mode: str
    inverse_from: int

    def emit(self, spark: SparkSession, before: int, commit: Commit) -> tuple[Commit, int]:
        """Write the results that are due, and give the commit without what they were the last to need.

        Parameters
        ----------
        spark
            The batch's session.
        before
            The watermark before this batch, in microseconds.
        commit
            What is true after this batch, its partials in the log.

        Returns
        -------
        tuple
            The commit, and the number of results.
        """
        if self.mode == "append":
            return self._emit_closed(spark, before, commit)
        if not any(entry.batch == commit.batch for entry in commit.log):
            return self._expired(commit), 0
        if self.mode == "complete":
            merged = merged_windows(self.log.read(spark, commit.log), self.partials, None)
            given = with_states(merged, self.partials)
            return commit, self.sink.write(self.partials.finished(given), commit.batch)
        touched = self.log.touched(spark, commit.log, commit.batch)
        merged = merged_windows(touched, self.partials, self._still_open(before)).where(NEW)
        return self._expired(commit), self.sink.write(self.partials.finished(merged), commit.batch)

    @property
    def _window(self) -> Window | None:
        """The window; of sessions, None."""
        window = self.partials.program.window
        return window if isinstance(window, Window) else None

    def _still_open(self, before: int) -> Any:
        return ends_after(self._window, before) if self._window is not None else None

    def _emit_sessions(self, spark: SparkSession, session: Session, commit: Commit) -> tuple[Commit, int]:
        """Results of sessions that are over; where there are some, the log keeps the others alone.

        So what was given is never read again: a row that would have been of it begins another session, as in Spark.
        """
        found = merged_windows(self.log.read(spark, commit.log), self.partials, None)
        over = is_over(session, commit.watermark)
        given = with_states(found.where(over), self.partials)
        results = self.sink.write(self.partials.finished(given), commit.batch)
        if not results:
            return commit, 0
        left = self.log.rewrite(of_sessions(found.where(~over), self.partials), commit.batch, commit.log)
        panes = reduce(Span.joined, (entry.panes for entry in commit.log if entry.panes))
        return replace(commit, log=(left.entry(commit.batch, panes),) if left.rows else ()), results

    def _emit_closed(self, spark: SparkSession, before: int, commit: Commit) -> tuple[Commit, int]:
        session, window = self.partials.program.session, self._window
        if session is not None:
            moved = commit.log and commit.watermark > before
            return self._emit_sessions(spark, session, commit) if moved else (commit, 0)
        assert window is not None, "append needs a window; the builder checks it"
        live: Span | None = None
        for entry in commit.log:
            live = entry.panes.joined(live) if entry.panes else live
        starts = closing(window, live, before, commit.watermark) if live else range(0)
        if not starts:
            return self._expired(commit), 0
        if not self._inverse_pays():
            merged = self._closed(spark, commit, starts)
            return self._expired(commit), self.sink.write(self.partials.finished(merged), commit.batch)
        return self._emit_running(spark, commit, starts)

    def _inverse_pays(self) -> bool:
        window = self._window
        return window is not None and window.panes >= self.inverse_from and self.partials.subtracts

    def _emit_running(self, spark: SparkSession, commit: Commit, starts: range) -> tuple[Commit, int]:
        """Results of closing windows, where the last one closed by adding and taking away panes."""
        window = self._window
        assert window is not None
        running, last = commit.running, starts[-1]
        name = self.state.new_folder(commit.batch)
        if running is not None and starts[0] == last == running.start + window.slide:
            states = self._slid(spark, commit, running, last)
            states.withColumn(START, F.lit(last).cast("bigint")).write.parquet(self.state.running.child(name))
        else:
            merged = self._closed(spark, commit, starts)
            self.partials.folded(merged).write.parquet(self.state.running.child(name))
        windows = spark.read.parquet(self.state.running.child(name))
        results = self.sink.write(self.partials.finished(windows), commit.batch)
        running = Running(name, commit.batch, last, self.state.described(self.state.running, name))
        return self._expired(replace(commit, running=running)), results

    def _slid(self, spark: SparkSession, commit: Commit, running: Running, start: int) -> DataFrame:
        """The window at `start` from the one before it: new and late partials added, expired panes taken away."""
        window = self._window
        assert window is not None
        old = Span(running.start // window.pane, (running.start + window.size) // window.pane - 1)
        new = Span(start // window.pane, (start + window.size) // window.pane - 1)
        before = [entry for entry in commit.log if entry.batch <= running.batch]
        since = [entry for entry in commit.log if entry.batch > running.batch]
        held = spark.read.parquet(self.state.running.child(running.name)).where(F.col(START) == running.start)
        entering = self.log.read(spark, before, Span(old.last + 1, new.last))
        arrived = self.log.read(spark, since, new)
        leaving = self.log.read(spark, before, Span(old.first, new.first - 1))
        names = [field.name for field in self.partials.schema.fields if field.name not in (PANE, BAD, BAD_ROW)]
        shown = [quoted(name) for name in names]
        plus = held.select(*shown).unionByName(entering.select(*shown)).unionByName(arrived.select(*shown))
        return self.partials.signed(plus, leaving.select(*shown))

    def _closed(self, spark: SparkSession, commit: Commit, starts: range) -> DataFrame:
        """Merged states of the windows at `starts`, out of the log folders with panes in them."""
        window = self._window
        assert window is not None
        panes = Span(starts[0] // window.pane, (starts[-1] + window.size) // window.pane - 1)
        holding = [e for e in commit.log if e.panes and e.panes.first <= panes.last and e.panes.last >= panes.first]
        return merged_windows(self.log.read(spark, holding, panes), self.partials, between(starts))

    def _expired(self, commit: Commit) -> Commit:
        """Without log folders that no open window will read."""
        window = self._window
        if window is None or self.mode == "complete":
            return commit

        live = (entry for entry in commit.log if entry.panes and not self._is_over(entry.panes.last, commit))
        return replace(commit, log=tuple(live))

    def _is_over(self, pane: int, commit: Commit) -> bool:
        """Whether no window will read a pane again; where panes are taken out, that is one slide after the last."""
        window = self._window
        assert window is not None
        return last_end(window, pane) + self._kept_for(commit) <= commit.watermark

    def _kept_for(self, commit: Commit) -> int:
        """For how long panes are kept behind the end of their last window: until they are taken out."""
        window = self._window
        return window.slide if window is not None and commit.running is not None else 0

    def compacted(self, spark: SparkSession, commit: Commit) -> Commit:
        """The log with some of its folders merged into one, where there are many.

        Folders that came after the running window stay as they are: whether a partial is in it is told by
        its folder's batch.
        """
        limit = commit.running.batch if commit.running else commit.batch
        before = tuple(entry for entry in commit.log if entry.batch <= limit)
        since = tuple(entry for entry in commit.log if entry.batch > limit)
        log = [self._fewer(spark, part, commit) for part in (before, since)]
        return replace(commit, log=(*log[0], *log[1]))

    def _fewer(self, spark: SparkSession, part: tuple[LogFolder, ...], commit: Commit) -> tuple[LogFolder, ...]:
        """Many folders with the newer ones merged, without the panes that no open window will read; few as they are."""
        if len(part) < COMPACT_AFTER:
            return part
        many = len(part) - _as_large(part)
        kept, merged = part[:many], part[many:]
        first = min(entry.panes.first for entry in merged if entry.panes)
        last = max(entry.panes.last for entry in merged if entry.panes)
        window = self._window
        if window is not None and self.mode != "complete":
            first = max(first, min(last, first_open(window, commit.watermark - self._kept_for(commit))))
        live = self.log.read(spark, merged, Span(first, last))
        written = self.log.rewrite(self.partials.compacted(live), commit.batch, merged)
        return (*kept, written.entry(max(entry.batch for entry in merged), Span(first, last)))


def _as_large(part: tuple[LogFolder, ...]) -> int:
    """How many of the newest folders are merged: up to the first that is far larger than all that are newer."""
    newer = 0
    for number, entry in enumerate(reversed(part)):
        rows = max(entry.rows, ALIKE)
        if number > 1 and rows > LARGER * newer:
            return number
        newer += rows
    return len(part)

"""Windows out of the log: which close, what they are made of, what the log still needs afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from steelyard.spark.partials import START, Partials
from steelyard.spark.rows import BAD, BAD_ROW, PANE, quoted
from steelyard.spark.sinks import Sink
from steelyard.spark.state import Commit, LogFolder, Running, StateFolder
from steelyard.spark.windows import Span, between, closing, last_end, merged_windows

COMPACT_AFTER = 24
"""Folders in the log before they are merged into one."""


@dataclass(frozen=True)
class Emission:
    """Gives the sink what a batch's commit makes due, and keeps the log short.

    Parameters
    ----------
    partials
        The program's states: how to merge and finish them.
    state
        Where the log lives.
    sink
        Where results go.
    mode
        Output mode: `"append"`, `"update"` or `"complete"`.
    inverse_from
        Panes of a window from which on it is made from the one before, where that is exact.
    """

    partials: Partials
    state: StateFolder
    sink: Sink
    mode: str
    inverse_from: int

    def emit(self, spark: SparkSession, before: int, commit: Commit, folder: str) -> tuple[Commit, int]:
        """Write the results that are due, and give the commit without what they were the last to need.

        Parameters
        ----------
        spark
            The batch's session.
        before
            The watermark before this batch, in microseconds.
        commit
            What is true after this batch, its partials in the log.
        folder
            The batch's own partials.

        Returns
        -------
        tuple
            The commit, and the number of results.
        """
        if self.mode == "append":
            return self._emit_closed(spark, before, commit)
        if not any(entry.batch == commit.batch for entry in commit.log):
            return self._expired(commit), 0
        everything = self.read(spark, [entry.name for entry in commit.log])
        merged = merged_windows(everything, self.partials, None)
        if self.mode == "update":
            touched = merged_windows(self.read(spark, [folder]), self.partials, self._still_open(before))
            by = list(self.partials.program.keys)
            by += [START] if self.partials.program.window else []
            merged = merged.join(touched.select(*(quoted(name) for name in by)), by, "left_semi")
        results = self.sink.write(self.partials.finished(merged), commit.batch)
        return (self._expired(commit) if self.mode == "update" else commit), results

    def _still_open(self, before: int) -> Any:
        window = self.partials.program.window
        return F.col(START) + window.size > before if window is not None else None

    def _emit_closed(self, spark: SparkSession, before: int, commit: Commit) -> tuple[Commit, int]:
        window = self.partials.program.window
        assert window is not None, "append needs a window; the builder checks it"
        live: Span | None = None
        for entry in commit.log:
            live = entry.panes.joined(live) if entry.panes else live
        starts = closing(window, live, before, commit.watermark) if live else range(0)
        if not starts:
            return self._expired(commit), 0
        if not self._inverse_pays():
            needed = self._holding(commit, starts)
            merged = merged_windows(self.read(spark, needed), self.partials, between(starts))
            return self._expired(commit), self.sink.write(self.partials.finished(merged), commit.batch)
        return self._emit_running(spark, commit, starts)

    def _inverse_pays(self) -> bool:
        window = self.partials.program.window
        return window is not None and window.panes >= self.inverse_from and self.partials.subtracts

    def _emit_running(self, spark: SparkSession, commit: Commit, starts: range) -> tuple[Commit, int]:
        """Results of closing windows, where the last one closed by adding and taking away panes."""
        window = self.partials.program.window
        assert window is not None
        running, last = commit.running, starts[-1]
        name = self.state.new_folder(commit.batch)
        if running is not None and starts[0] == last == running.start + window.slide:
            states = self._slid(spark, commit, running, last)
            states.withColumn(START, F.lit(last).cast("bigint")).write.parquet(self.state.running.child(name))
        else:
            merged = merged_windows(self.read(spark, self._holding(commit, starts)), self.partials, between(starts))
            self.partials.folded(merged).write.parquet(self.state.running.child(name))
        windows = spark.read.parquet(self.state.running.child(name))
        results = self.sink.write(self.partials.finished(windows), commit.batch)
        running = Running(name, commit.batch, last, self.state.described(self.state.running, name))
        return self._expired(replace(commit, running=running)), results

    def _slid(self, spark: SparkSession, commit: Commit, running: Running, start: int) -> DataFrame:
        """The window at `start` from the one before it: new and late partials added, expired panes taken away."""
        window = self.partials.program.window
        assert window is not None
        old = Span(running.start // window.pane, (running.start + window.size) // window.pane - 1)
        new = Span(start // window.pane, (start + window.size) // window.pane - 1)
        before = [entry.name for entry in commit.log if entry.batch <= running.batch]
        since = [entry.name for entry in commit.log if entry.batch > running.batch]
        pane = F.col(PANE)
        held = spark.read.parquet(self.state.running.child(running.name)).where(F.col(START) == running.start)
        entering = self.read(spark, before).where((pane > old.last) & (pane <= new.last))
        arrived = self.read(spark, since).where((pane >= new.first) & (pane <= new.last))
        leaving = self.read(spark, before).where((pane >= old.first) & (pane < new.first))
        names = [field.name for field in self.partials.schema.fields if field.name not in (PANE, BAD, BAD_ROW)]
        shown = [quoted(name) for name in names]
        plus = held.select(*shown).unionByName(entering.select(*shown)).unionByName(arrived.select(*shown))
        return self.partials.signed(plus, leaving.select(*shown))

    def _holding(self, commit: Commit, starts: range) -> list[str]:
        """Log folders with panes in the windows at `starts`."""
        window = self.partials.program.window
        assert window is not None
        first, last = starts[0] // window.pane, (starts[-1] + window.size) // window.pane - 1
        return [e.name for e in commit.log if e.panes and e.panes.first <= last and e.panes.last >= first]

    def _expired(self, commit: Commit) -> Commit:
        """Without log folders that no open window will read."""
        window = self.partials.program.window
        if window is None or self.mode == "complete":
            return commit

        live = (entry for entry in commit.log if entry.panes and not self._is_over(entry.panes.last, commit))
        return replace(commit, log=tuple(live))

    def _is_over(self, pane: int, commit: Commit) -> bool:
        """Whether no window will read a pane again; where panes are taken out, that is one slide after the last."""
        window = self.partials.program.window
        assert window is not None
        keep_for = window.slide if commit.running is not None else 0
        return last_end(window, pane) + keep_for <= commit.watermark

    def compacted(self, spark: SparkSession, commit: Commit) -> Commit:
        """The log with its older folders merged into one, where there are many.

        Folders that came after the running window stay as they are: whether a partial is in it is told by
        its folder's batch.
        """
        limit = commit.running.batch if commit.running else commit.batch
        before = tuple(entry for entry in commit.log if entry.batch <= limit)
        since = tuple(entry for entry in commit.log if entry.batch > limit)
        log = [self._one_folder(spark, part, commit) for part in (before, since)]
        return replace(commit, log=(*log[0], *log[1]))

    def _one_folder(self, spark: SparkSession, part: tuple[LogFolder, ...], commit: Commit) -> tuple[LogFolder, ...]:
        """Many folders as one, without the panes that no open window will read; few folders as they are."""
        if len(part) < COMPACT_AFTER:
            return part
        live = self.read(spark, [entry.name for entry in part])
        first = min(entry.panes.first for entry in part if entry.panes)
        last = max(entry.panes.last for entry in part if entry.panes)
        window = self.partials.program.window
        if window is not None and self.mode != "complete":
            while first < last and self._is_over(first, commit):
                first += 1
            live = live.where(F.col(PANE) >= first)
        name = self.state.new_folder(commit.batch)
        self.partials.compacted(live).write.parquet(self.state.log.child(name))
        newest, files = max(entry.batch for entry in part), self.state.described(self.state.log, name)
        return (LogFolder(name, newest, Span(first, last), files),)

    def read(self, spark: SparkSession, names: list[str]) -> DataFrame:
        """The partials in these folders of the log."""
        if not names:
            return spark.createDataFrame([], self.partials.schema)
        paths = [self.state.log.child(name) for name in names]
        return spark.read.schema(self.partials.schema).parquet(*paths).where(f"{BAD} is null")

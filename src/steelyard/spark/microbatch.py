"""The micro-batch engine: one planned job a batch, on Structured Streaming's `foreachBatch`.

measure -> plan -> place rows in blocks -> map and combine -> allot buckets -> merge -> log of partials
        -> windows that close -> sink -> commit -> report -> next batch's numbers of tasks
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from steelyard.core import (
    BadRowError,
    BatchReport,
    BlockPlan,
    ElasticityPolicy,
    KeyCounts,
    OptionError,
    Partitioner,
    SteelyardError,
)
from steelyard.core import Observation as Seen
from steelyard.scaling import Fixed
from steelyard.spark.badrows import BadRows
from steelyard.spark.combine import ROWS
from steelyard.spark.partials import START, Partials
from steelyard.spark.placement import placed
from steelyard.spark.program import Bound
from steelyard.spark.rows import (
    BAD,
    BAD_ROW,
    BLOCK,
    LATE,
    MAP_FAILED,
    MICROS,
    PANE,
    SPLIT,
    failed,
    mapped,
    reasons,
    refused,
    tidied,
)
from steelyard.spark.sinks import Sink, claim
from steelyard.spark.state import Commit, LogFolder, Running, StateFolder
from steelyard.spark.statistics import FREQUENT, Carried, exact_counts, frequent_in_log, reported_counts
from steelyard.spark.tasklog import TaskLog, task_reports
from steelyard.spark.windows import Span, between, closing, last_end, merged_windows

COMPACT_AFTER = 24
"""Folders in the log before they are merged into one."""
REPORTS = 100
"""Batch reports that a query keeps, as many as Spark keeps progress reports."""
MAP_RAISED, AGGREGATE_RAISED = "the map function raised", "an aggregate raised"


@dataclass(frozen=True)
class Settings:
    """How a query runs; none of it changes its answers, and all of it may change at a restart."""

    partitioner: Partitioner
    elastic: ElasticityPolicy
    blocks: int
    buckets: int
    statistics: str = "carried"
    placement: str = "auto"
    mode: str = "append"
    interval: float = 0.0
    """Seconds between triggers."""
    bad: BadRows = field(default_factory=BadRows)
    inverse_from: int = 8
    """Panes of a window from which on it is made from the one before, where that is exact: it takes a job more."""

    def moves_rows(self, bound: Bound) -> bool:
        """Whether rows go to planned blocks.

        Where only built-in aggregates run, the JVM combines a row for less than it costs to move it, so `auto`
        moves rows only where Python will touch them.
        """
        if self.placement == "auto":
            return bound.program.map is not None or bool(bound.program.pythons)
        return self.placement == "blocks"


class StoppedError(SteelyardError):
    """A batch came while the query was being stopped; it is done at the next start."""


class MicroBatch:
    """Runs a program over one batch after the other, each exactly once.

    Parameters
    ----------
    spark
        A session.
    bound
        What is computed.
    settings
        How.
    sink
        Where results go.
    checkpoint
        Where state lives.
    """

    def __init__(self, spark: SparkSession, bound: Bound, settings: Settings, sink: Sink, checkpoint: str) -> None:
        self.bound = bound
        self.program = bound.program
        if settings.statistics == "exact" and not bound.places_before_map:
            raise OptionError(
                "statistics('exact') counts keys before the map function runs, and the input does not have "
                f"{', '.join(bound.program.keys)} in the type that the map function gives: use 'carried'"
            )
        self.settings = settings
        self.sink = sink
        self.partials = Partials(spark, bound)
        self.state = StateFolder(spark, checkpoint)
        self.state.same_program({**bound.signature(), "mode": settings.mode, "inverse": self.partials.subtracts})
        for path in (getattr(sink, "path", None), settings.bad.path):
            if path is not None:
                claim(spark, path, self.state.identity())
        self.last = self.state.latest()
        self.carried = Carried.from_text(self.program.keys, self.last.counts)
        # What a policy had chosen holds over a restart; fixed numbers are those of the newest start.
        chosen = self.last.blocks > 0 and not isinstance(settings.elastic, Fixed)
        self.blocks = self.last.blocks if chosen else settings.blocks
        self.buckets = self.last.buckets if chosen else settings.buckets
        self.log = TaskLog(spark.sparkContext)
        self.reports: deque[BatchReport] = deque(maxlen=REPORTS)
        self.stopping = False
        self._busy = threading.Lock()

    def process(self, batch: DataFrame, number: int) -> BatchReport | None:
        """One batch, from its rows to its commit; None for a batch that was committed before a crash."""
        with self._busy:
            if self.stopping:
                raise StoppedError(f"batch {number} was not begun: the query is being stopped")
            return None if number <= self.last.batch else self._process(batch, number)

    def let_end(self, seconds: float) -> bool:
        """Begin no further batch, and wait for the one under way; whether it ended in time."""
        self.stopping = True
        ended = self._busy.acquire(timeout=seconds)
        if ended:
            self._busy.release()
        return ended

    def _process(self, batch: DataFrame, number: int) -> BatchReport:
        spark = batch.sparkSession
        for option, value in self._session_options():
            spark.conf.set(option, value)
        clock = Clock()
        self.log.take()
        plan, source, kept = self._planned(batch, clock)
        try:
            with clock.phase("process"):
                folder, seen = self._write_partials(kept, plan, number)
        finally:
            if kept is not batch:
                kept.unpersist()
        report = self._accounted(seen, number, plan, source)
        self._refuse_bad_rows(batch, folder, report)
        with clock.phase("windows"):
            commit = self._next_commit(folder, seen, number)
            commit, results = self._emit(spark, commit, folder, number)
            commit = self._compacted(spark, commit, number)
        with clock.phase("statistics"):
            self._carry(spark, folder, report)
        self._finish(commit, replace(report, results=results, watermark=self._watermark_text(commit)), clock)
        return self.reports[-1]

    def _session_options(self) -> list[tuple[str, str]]:
        """For the session of the batch, which Spark makes for each query: numbers of tasks are ours to say."""
        return [
            ("spark.sql.adaptive.enabled", "false"),
            ("spark.sql.shuffle.partitions", str(self.buckets)),
        ]

    # -- measure and plan

    def _planned(self, batch: DataFrame, clock: Clock) -> tuple[BlockPlan | None, str, DataFrame]:
        if not self.settings.moves_rows(self.bound):
            return None, "none", batch
        if not self.settings.partitioner.needs_counts or not self.bound.keys_can_be_listed:
            counts, source = KeyCounts.of({}), "none"
        elif self.settings.statistics == "exact":
            batch = batch.persist()
            with clock.phase("statistics"):
                counts, source = exact_counts(batch, self.program.keys), "exact"
        else:
            counts, source = self.carried.counts, "carried"
        with clock.phase("plan"):
            plan = self.settings.partitioner.plan(counts, self.blocks)
        return plan, source, batch

    # -- act

    def _rows(self, batch: DataFrame, plan: BlockPlan | None) -> DataFrame:
        """Rows after the map function, in their blocks where there is a plan."""
        function = self.program.map
        before = plan is not None and self.bound.places_before_map
        rows = batch
        if function is not None and not before:
            rows = mapped(rows, function, self.log)
        if plan is not None:
            rows = placed(rows, plan, self.program.keys, self._arrival(rows))
        if function is not None and before:
            rows = mapped(rows.drop(BLOCK, SPLIT), function, self.log)
        return rows

    def _arrival(self, rows: DataFrame) -> str | None:
        return self.program.time if self.program.time in rows.columns else None

    def _write_partials(self, batch: DataFrame, plan: BlockPlan | None, number: int) -> tuple[str, dict[str, Any]]:
        closed = None if self.settings.mode == "complete" else self.last.watermark
        tidy = tidied(self._rows(batch, plan), self.bound, closed)
        seen = Observation()
        tidy = tidy.observe(seen, *self._measures(tidy, plan))
        clean = tidy.where(f"{BAD} is null and not {LATE}")
        name = self.state.new_folder(number)
        partials = self.partials.of_rows(clean, self.buckets, self.log, FREQUENT)
        made = Observation()
        partials = partials.observe(made, F.count(F.col(BAD)).alias("failed"), F.sum(ROWS).alias("kept"))
        partials.write.parquet(self.state.log.child(name))
        return name, {**seen.get, **made.get}

    def _measures(self, tidy: DataFrame, plan: BlockPlan | None) -> list[Any]:
        clean = F.col(BAD).isNull() & ~F.col(LATE)
        measures = [
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col(BAD).isNull() & F.col(LATE)).alias("late"),
            F.max(MICROS).alias("newest"),
            F.min(F.when(clean, F.col(PANE))).alias("first_pane"),
            F.max(F.when(clean, F.col(PANE))).alias("last_pane"),
            F.count_if(F.col(BAD).startswith(MAP_FAILED)).alias("map"),
        ]
        measures += [F.count_if(F.col(BAD) == why).alias(f"bad{i}") for i, why in enumerate(reasons(self.bound))]
        if plan is not None and BLOCK in tidy.columns and not self.program.pythons:  # Python tasks tell their rows
            measures += [F.count_if(F.col(BLOCK) == block).alias(f"block{block}") for block in range(plan.blocks)]
        return measures

    # -- windows and results

    def _next_commit(self, folder: str, seen: dict[str, Any], number: int) -> Commit:
        newest = seen["newest"]
        watermark = self.last.watermark
        if self.program.window is not None and newest is not None:
            # Spark keeps its watermark in milliseconds.
            watermark = max(watermark, newest // 1000 * 1000 - self.program.delay)
        panes = Span(seen["first_pane"], seen["last_pane"]) if seen["first_pane"] is not None else None
        grown = replace(self.last, batch=number, watermark=watermark)
        return grown.with_log(LogFolder(folder, number, panes)) if panes else grown

    def _emit(self, spark: SparkSession, commit: Commit, folder: str, number: int) -> tuple[Commit, int]:
        if self.settings.mode == "append":
            return self._emit_closed(spark, commit, number)
        if not any(entry.batch == number for entry in commit.log):
            return self._expired(commit), 0
        everything = self._read(spark, [entry.name for entry in commit.log])
        merged = merged_windows(everything, self.partials, None)
        if self.settings.mode == "update":
            touched = merged_windows(self._read(spark, [folder]), self.partials, self._still_open())
            by = [*self.program.keys, START] if self.program.window else list(self.program.keys)
            merged = merged.join(touched.select(*(f"`{name}`" for name in by)), by, "left_semi")
        results = self.sink.write(self.partials.finished(merged), number)
        return (self._expired(commit) if self.settings.mode == "update" else commit), results

    def _still_open(self) -> Any:
        window = self.program.window
        return F.col(START) + window.size > self.last.watermark if window is not None else None

    def _emit_closed(self, spark: SparkSession, commit: Commit, number: int) -> tuple[Commit, int]:
        window = self.program.window
        assert window is not None, "append needs a window; the builder checks it"
        live: Span | None = None
        for entry in commit.log:
            live = entry.panes.joined(live) if entry.panes else live
        starts = closing(window, live, self.last.watermark, commit.watermark) if live else range(0)
        if not starts:
            return self._expired(commit), 0
        if not self._inverse_pays():
            needed = self._holding(commit, starts)
            merged = merged_windows(self._read(spark, needed), self.partials, between(starts))
            return self._expired(commit), self.sink.write(self.partials.finished(merged), number)
        return self._emit_running(spark, commit, starts, number)

    def _inverse_pays(self) -> bool:
        window = self.program.window
        return window is not None and window.panes >= self.settings.inverse_from and self.partials.subtracts

    def _emit_running(self, spark: SparkSession, commit: Commit, starts: range, number: int) -> tuple[Commit, int]:
        """Results of closing windows, where the last one closed by adding and taking away panes."""
        window = self.program.window
        assert window is not None
        running, last = commit.running, starts[-1]
        name = self.state.new_folder(number)
        if running is not None and starts[0] == last == running.start + window.slide:
            states = self._slid(spark, commit, running, last)
            states.withColumn(START, F.lit(last).cast("bigint")).write.parquet(self.state.running.child(name))
        else:
            merged = merged_windows(self._read(spark, self._holding(commit, starts)), self.partials, between(starts))
            self.partials.folded(merged).write.parquet(self.state.running.child(name))
        windows = spark.read.parquet(self.state.running.child(name))
        results = self.sink.write(self.partials.finished(windows), number)
        return self._expired(replace(commit, running=Running(name, number, last))), results

    def _slid(self, spark: SparkSession, commit: Commit, running: Running, start: int) -> DataFrame:
        """The window at `start` from the one before it: new and late partials added, expired panes taken away."""
        window = self.program.window
        assert window is not None
        old = Span(running.start // window.pane, (running.start + window.size) // window.pane - 1)
        new = Span(start // window.pane, (start + window.size) // window.pane - 1)
        before = [entry.name for entry in commit.log if entry.batch <= running.batch]
        since = [entry.name for entry in commit.log if entry.batch > running.batch]
        pane = F.col(PANE)
        held = spark.read.parquet(self.state.running.child(running.name)).where(F.col(START) == running.start)
        entering = self._read(spark, before).where((pane > old.last) & (pane <= new.last))
        arrived = self._read(spark, since).where((pane >= new.first) & (pane <= new.last))
        leaving = self._read(spark, before).where((pane >= old.first) & (pane < new.first))
        names = [field.name for field in self.partials.schema.fields if field.name not in (PANE, BAD, BAD_ROW)]
        shown = [F.col(f"`{name}`") for name in names]
        plus = held.select(*shown).unionByName(entering.select(*shown)).unionByName(arrived.select(*shown))
        return self.partials.signed(plus, leaving.select(*shown))

    def _holding(self, commit: Commit, starts: range) -> list[str]:
        """Log folders with panes in the windows at `starts`."""
        window = self.program.window
        assert window is not None
        first, last = starts[0] // window.pane, (starts[-1] + window.size) // window.pane - 1
        return [e.name for e in commit.log if e.panes and e.panes.first <= last and e.panes.last >= first]

    def _expired(self, commit: Commit) -> Commit:
        """Without log folders that no open window will read."""
        window = self.program.window
        if window is None or self.settings.mode == "complete":
            return commit

        live = (entry for entry in commit.log if entry.panes and not self._is_over(entry.panes.last, commit))
        return replace(commit, log=tuple(live))

    def _is_over(self, pane: int, commit: Commit) -> bool:
        """Whether no window will read a pane again; where panes are taken out, that is one slide after the last."""
        window = self.program.window
        assert window is not None
        keep_for = window.slide if commit.running is not None else 0
        return last_end(window, pane) + keep_for <= commit.watermark

    def _compacted(self, spark: SparkSession, commit: Commit, number: int) -> Commit:
        """The log with its older folders merged into one, where there are many.

        Folders that came after the running window stay as they are: whether a partial is in it is told by
        its folder's batch.
        """
        limit = commit.running.batch if commit.running else number
        before = tuple(entry for entry in commit.log if entry.batch <= limit)
        since = tuple(entry for entry in commit.log if entry.batch > limit)
        log = [self._one_folder(spark, part, commit, number) for part in (before, since)]
        return replace(commit, log=(*log[0], *log[1]))

    def _one_folder(
        self, spark: SparkSession, part: tuple[LogFolder, ...], commit: Commit, number: int
    ) -> tuple[LogFolder, ...]:
        """Many folders as one, without the panes that no open window will read; few folders as they are."""
        if len(part) < COMPACT_AFTER:
            return part
        live = self._read(spark, [entry.name for entry in part])
        first = min(entry.panes.first for entry in part if entry.panes)
        last = max(entry.panes.last for entry in part if entry.panes)
        window = self.program.window
        if window is not None and self.settings.mode != "complete":
            while first < last and self._is_over(first, commit):
                first += 1
            live = live.where(F.col(PANE) >= first)
        name = self.state.new_folder(number)
        self.partials.compacted(live).write.parquet(self.state.log.child(name))
        return (LogFolder(name, max(entry.batch for entry in part), Span(first, last)),)

    def _read(self, spark: SparkSession, names: list[str]) -> DataFrame:
        if not names:
            return spark.createDataFrame([], self.partials.schema)
        paths = [self.state.log.child(name) for name in names]
        return spark.read.schema(self.partials.schema).parquet(*paths).where(f"{BAD} is null")

    # -- report

    def _accounted(self, seen: dict[str, Any], number: int, plan: BlockPlan | None, source: str) -> BatchReport:
        entries = self.log.take()
        bad = {why: seen[f"bad{i}"] for i, why in enumerate(reasons(self.bound))}
        bad |= {MAP_RAISED: seen["map"], AGGREGATE_RAISED: seen["failed"]}
        sizes = [seen.get(f"block{block}", 0) for block in range(plan.blocks)] if plan else []
        tasks = task_reports(entries)
        if not any(sizes):
            sizes = [task.rows for task in tasks]
        mean = sum(sizes) / max(1, plan.blocks if plan else len(sizes)) if sizes else 0
        self._frequent = [entry["frequent"] for entry in entries.values() if "frequent" in entry]
        return BatchReport(
            batch=number,
            rows=seen["rows"],
            late_rows=seen["late"],
            bad_rows={why: rows for why, rows in bad.items() if rows},
            blocks=plan.blocks if plan else len(tasks),
            buckets=self.buckets,
            policy=self.settings.partitioner.name if plan else "",
            placement="blocks" if plan else "in_place",
            statistics=source,
            plan=_plan_metrics(plan),
            tasks=tasks,
            largest_over_mean=max(sizes) / mean if mean else 1.0,
            state_rows=seen["kept"] or 0,
        )

    def _refuse_bad_rows(self, batch: DataFrame, folder: str, report: BatchReport) -> None:
        bad = self.settings.bad
        if not report.bad_rows or bad.policy == "drop":
            return
        letters = refused(self._rows(batch, None), self.bound)
        if report.bad_rows.get(AGGREGATE_RAISED):
            partials = batch.sparkSession.read.schema(self.partials.schema).parquet(self.state.log.child(folder))
            letters = letters.unionByName(failed(partials))
        if bad.policy == "fail":
            raise BadRowError(bad.complaint(report, letters))
        bad.keep(letters, report.batch)

    def _carry(self, spark: SparkSession, folder: str, report: BatchReport) -> None:
        wanted = self.settings.partitioner.needs_counts and self.settings.statistics == "carried"
        if not wanted or report.statistics != "carried" or not report.state_rows:
            return
        reported = reported_counts(self._frequent, self.program.keys)
        if reported is None:
            reported = frequent_in_log(self._read(spark, [folder]), self.program.keys)
        self.carried.update(reported)

    def _watermark_text(self, commit: Commit) -> str | None:
        if self.program.window is None:
            return None
        seconds, micros = divmod(commit.watermark, 1_000_000)
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros // 1000:03d}Z"

    def _finish(self, commit: Commit, report: BatchReport, clock: Clock) -> None:
        observation = Seen(
            batch=report.batch,
            rows=report.rows,
            keys=sum(task.clusters for task in report.tasks),
            blocks=self.blocks,
            buckets=self.buckets,
            processing_seconds=clock.total(),
            interval_seconds=self.settings.interval,
        )
        decision = self.settings.elastic.decide(observation)
        changed = (decision.blocks, decision.buckets) != (self.blocks, self.buckets)
        with clock.phase("commit"):
            counts = self.carried.to_text()
            self.last = replace(commit, blocks=decision.blocks, buckets=decision.buckets, counts=counts)
            self.state.commit(self.last)
        self.blocks, self.buckets = decision.blocks, decision.buckets
        self.reports.append(
            replace(
                report, seconds=clock.phases | {"total": clock.total()}, decision=decision.reason if changed else ""
            )
        )


def _plan_metrics(plan: BlockPlan | None) -> dict[str, float]:
    if plan is None or not len(plan.counts):
        return {}
    return {
        "bsi": plan.bsi,
        "bci": plan.bci,
        "ksr": plan.ksr,
        "largest_over_mean": plan.largest_over_mean,
        "split_keys": float(plan.split.sum()),
    }


class Clock:
    """Wall-clock time by phase."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside to `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> float:
        """Time since the clock was made."""
        return time.perf_counter() - self.started

"""The micro-batch engine: one planned job per batch, on Structured Streaming's `foreachBatch`.

measure -> plan -> place rows in blocks -> map and combine -> allot buckets -> merge -> log of partials
        -> windows that close -> sink -> commit -> report -> next batch's numbers of tasks
"""

from __future__ import annotations

import copy
import logging
import time
from dataclasses import replace
from typing import Any, ClassVar

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from steelyard.control import Controller
from steelyard.core import (
    BLOCKS,
    BUCKETS,
    Action,
    BatchObservation,
    BlockPlan,
    KeyCounts,
    Observing,
    OptionError,
    Partitioner,
    Progress,
    RowRule,
)
from steelyard.core import Observation as Seen
from steelyard.core.durations import instant_text
from steelyard.core.hidden import BAD, BLOCK, LATE, MICROS, PANE, SPLIT
from steelyard.core.needs import OF_BATCHES
from steelyard.scaling import Fixed
from steelyard.spark.badrows import on_every_row
from steelyard.spark.columns import Columns
from steelyard.spark.combine import AGGREGATE_FAILED
from steelyard.spark.emission import Emission
from steelyard.spark.engine import BatchEngine, Clock
from steelyard.spark.memory import PolicyMemory
from steelyard.spark.partial_log import SMALL_ROWS, PartialLog, Written
from steelyard.spark.partials import Partials
from steelyard.spark.placement import partitions, placed
from steelyard.spark.program import Bound
from steelyard.spark.routing import ROUTE
from steelyard.spark.rows import MAP, MAP_FAILED, Tidy, failed, mapped, reasons, refused
from steelyard.spark.said import batch_progress
from steelyard.spark.settings import Settings
from steelyard.spark.sinks import Sink, claim, folders, opened, tell_what_is_gone
from steelyard.spark.state import Commit, StateFolder
from steelyard.spark.statistics import FREQUENT, Carried, exact_counts, frequent_in_log, reported_counts
from steelyard.spark.tasklog import TaskLog, reduce_reports, task_reports
from steelyard.spark.windows import Span

_LOG = logging.getLogger(__name__)

MAP_RAISED, AGGREGATE_RAISED = "the map function raised", "an aggregate raised"


class MicroBatch(BatchEngine):
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

    what: ClassVar[str] = "a query in micro-batches"
    last: Commit
    state: StateFolder

    def __init__(self, spark: SparkSession, bound: Bound, settings: Settings, sink: Sink, checkpoint: str) -> None:
        super().__init__()
        self.bound = bound
        self.program = bound.program
        if settings.statistics == "exact" and not bound.places_before_map:
            raise OptionError(
                "statistics('exact') counts keys before the map function runs, and the input does not have "
                f"{', '.join(bound.program.keys)} in the type that the map function gives: use 'carried'"
            )
        # What a policy learns belongs to this query: others may be started from the same description.
        partitioner, elastic = copy.deepcopy((settings.partitioner, settings.elastic))
        self.settings = settings = replace(settings, partitioner=partitioner, elastic=elastic)
        self._controller = Controller(self, elastic, settings.guards, self.feed.tell)
        self._told: set[str] = set()
        self.partials = Partials(spark, bound, settings.allocator)
        self._tidy = Tidy(bound)
        self._measured: dict[tuple[int, bool], Columns] = {}
        self.state = StateFolder(spark, checkpoint)
        self.last = self.state.latest(
            {**bound.signature(), "mode": settings.mode, "inverse": self.partials.subtracts},
            {"delay": self.program.delay},
        )
        tell_what_is_gone(spark, sink, settings.bad.path, self.state.identity, self.last.batch)
        if settings.bad.path is not None:
            claim(spark, settings.bad.path, self.state.identity)
        self.sink = opened(sink, spark, self.partials.result_schema, self.state.identity)
        self.state.take(folders(sink, settings.bad.path))
        self.partial_log = PartialLog(self.partials, self.state, settings.mode == "update")
        self.emission = Emission(
            self.partials, self.state, self.partial_log, sink, settings.mode, settings.inverse_from
        )
        if self.last.delay is None:
            self.last = replace(self.last, delay=self.state.first["delay"])
        self.carried = Carried.from_text(self.program.keys, self.last.counts)
        # What a policy had chosen holds over a restart; fixed numbers are those of the newest start.
        chosen = self.last.blocks > 0 and not isinstance(settings.elastic, Fixed)
        self.blocks = self.last.blocks if chosen else settings.blocks
        self.buckets = self.last.buckets if chosen else settings.buckets
        self.memory = PolicyMemory(self.state, partitioner, elastic)
        self.memory.recall(self.last.policy)
        self._context, self._began = spark.sparkContext, time.monotonic()
        self._partitions: int | None = None
        """Of the first small batch."""
        self.log = TaskLog(self._context)

    def _process(self, batch: DataFrame, number: int) -> Progress:
        spark = self._begin(batch)
        clock = self._clock(batch, number)
        plan, source, counted = self._planned(batch, clock)
        rows = self._rows(counted, plan, number)
        if self._reads_twice:
            rows = rows.persist()
        try:
            with clock.phase("process"):
                written, seen = self._write_partials(rows, number)
            report = self._accounted(seen, number, plan, source)
            self._refuse_bad_rows(rows if self._reads_twice else self._mapped(counted), written, report)
        finally:
            if self._reads_twice:
                rows.unpersist()
            if counted is not batch:
                counted.unpersist()
        with clock.phase("results"):
            commit = self._next_commit(written, seen, number)
            commit, results = self.emission.emit(spark, self.last.watermark, commit)
            commit = self.emission.compacted(spark, commit)
        with clock.phase("statistics"):
            self._carry(spark, written, report)
        return self._finish(commit, report.more(results=results, watermark=self._watermark_text(commit)), clock)

    def _begin(self, batch: DataFrame) -> SparkSession:
        """Make the batch's session ready for its jobs, and give it."""
        spark = batch.sparkSession
        for option, value in self._session_options():
            spark.conf.set(option, value)
        self.log.take()
        return spark

    @property
    def _reads_twice(self) -> bool:
        """Whether a batch's rows are kept, since two aggregations or the dead letters read them beside each other.

        The source is then read once, the map function sees a row once, and Spark counts its input rows once.
        """
        both = bool(self.program.pythons) and bool(self.program.builtins or self.program.session)
        return both or self.settings.bad.policy == "dead_letter"

    def _session_options(self) -> list[tuple[str, str]]:
        """For the session of the batch, which Spark makes for each query: numbers of tasks are ours to say."""
        return [
            ("spark.sql.adaptive.enabled", "false"),
            ("spark.sql.shuffle.partitions", str(self.buckets)),
            ("spark.sql.ui.explainMode", "simple"),  # a long text of every plan takes as long as a small job
        ]

    # -- measure and plan

    def _planned(self, batch: DataFrame, clock: Clock) -> tuple[BlockPlan | None, str, DataFrame]:
        policy = self.settings.partitioner
        if not self.settings.moves_rows(self.bound) or not isinstance(policy, Partitioner):
            return None, "none", batch
        if not policy.needs_counts or not self.bound.keys_can_be_listed:
            counts, source = KeyCounts.of({}), "none"
        elif self.settings.statistics == "exact":
            batch = batch.persist()
            with clock.phase("statistics"):
                counts, source = exact_counts(batch, self.program.keys), "exact"
        else:
            counts, source = self.carried.counts, "carried"
        with clock.phase("plan"):
            plan = policy.plan(counts, self.blocks)
        if plan.rule is RowRule.ARRIVAL and self.program.time is not None and batch.storageLevel == StorageLevel.NONE:
            batch = batch.persist()  # the first and the last time are found first
        return plan, source, batch

    # -- act

    def _rows(self, batch: DataFrame, plan: BlockPlan | None, number: int) -> DataFrame:
        """Rows after the map function, in the blocks where they are planned or routed to."""
        function = self.program.map
        moves = self._moves(plan)
        routers = self.memory.partitioners
        before = moves and (self.bound.places_before_map or (routers is not None and routers.by_cost))
        rows = batch
        if self._is_small(batch):
            rows = rows.coalesce(1)
        if function is not None and not before:
            rows = mapped(rows, function, self.log)
        if moves and plan is not None:
            rows = placed(rows, plan, self.program.keys, self._arrival(rows))
        elif moves and routers is not None:
            rows = routers.placed(rows, self.program.keys, self.blocks, number, self.log)
        if function is not None and before:
            rows = mapped(rows.drop(BLOCK, SPLIT), function, self.log, routers.meter() if routers else None)
        return rows

    def _is_small(self, batch: DataFrame) -> bool:
        """Whether one task reads and combines a batch, so that no rows move: there were few in the one before.

        A batch of many partitions, such as those of a topic, is read by more tasks: each of them takes its time.
        """
        if self.program.pythons or self.program.map is not None or self.settings.moves_rows(self.bound):
            return False
        if not self.feed.progress or self.feed.progress[-1].rows > SMALL_ROWS:
            return False
        if self._partitions is None:
            self._partitions = partitions(batch)
        return self._partitions <= self._context.defaultParallelism

    def _moves(self, plan: BlockPlan | None) -> bool:
        """Whether the rows of this batch go to other partitions than those they are read in."""
        return self.settings.moves_rows(self.bound) and (plan is None or plan.rule is not RowRule.IN_PLACE)

    def _mapped(self, batch: DataFrame) -> DataFrame:
        """Rows after the map function, where they are."""
        return mapped(batch, self.program.map, None) if self.program.map is not None else batch

    def _arrival(self, rows: DataFrame) -> str | None:
        return self.program.time if self.program.time in rows.columns else None

    def _write_partials(self, rows: DataFrame, number: int) -> tuple[Written, dict[str, Any]]:
        closed = None if self.settings.mode == "complete" else self.last.watermark
        tidy = self._tidy.of(rows, closed)
        seen = Observation()
        tidy = self._measures(BLOCK in rows.columns).seen_in(tidy, seen)
        clean = tidy.where(f"{BAD} is null and not {LATE}")
        written = self.partial_log.write(self.partials.of_rows(clean, self.buckets, self.log, FREQUENT), number)
        return written, {**seen.get, "failed": written.failed, "kept": written.kept, "keys": written.keys}

    def _measures(self, in_blocks: bool) -> Columns:
        """What is counted of rows on their way; `in_blocks` is whether they know their block."""
        if (self.blocks, in_blocks) not in self._measured:
            self._measured[self.blocks, in_blocks] = Columns(self._measure_columns(in_blocks))
        return self._measured[self.blocks, in_blocks]

    def _measure_columns(self, in_blocks: bool) -> list[Column]:
        clean = F.col(BAD).isNull() & ~F.col(LATE)
        measures = [
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col(BAD).isNull() & F.col(LATE)).alias("late"),
            F.max(F.when(F.col(BAD).isNull(), F.col(MICROS))).alias("newest"),  # a bad row's time may be bad too
            F.min(F.when(clean, F.col(PANE))).alias("first_pane"),
            F.max(F.when(clean, F.col(PANE))).alias("last_pane"),
            *self._bad_measures(),
        ]
        return measures if self.program.pythons else [*measures, *self._block_measures(in_blocks)]  # Python tasks tell

    def _bad_measures(self) -> list[Column]:
        """How many rows are bad, by reason."""
        found = [F.count_if(F.col(BAD).startswith(MAP_FAILED)).alias("map")]
        return found + [F.count_if(F.col(BAD) == why).alias(f"bad{i}") for i, why in enumerate(reasons(self.bound))]

    def _block_measures(self, in_blocks: bool) -> list[Column]:
        """How many rows are in each block, where rows know it."""
        blocks = range(self.blocks if in_blocks else 0)
        return [F.count_if(F.col(BLOCK) == block).alias(f"block{block}") for block in blocks]

    # -- windows and results

    def _next_commit(self, written: Written, seen: dict[str, Any], number: int) -> Commit:
        newest = seen["newest"]
        watermark = self.last.watermark
        if self.program.window is not None and newest is not None:
            # Spark keeps its watermark in milliseconds.
            assert self.last.delay is not None
            watermark = max(watermark, newest // 1000 * 1000 - self.last.delay)
        panes = Span(seen["first_pane"], seen["last_pane"]) if seen["first_pane"] is not None else None
        grown = replace(self.last, batch=number, watermark=watermark, delay=self.program.delay)
        if panes is None:
            return grown
        return grown.with_log(written.entry(number, panes))

    # -- report

    def _accounted(self, seen: dict[str, Any], number: int, plan: BlockPlan | None, source: str) -> Progress:
        entries = self.log.take()
        if self.memory.partitioners is not None:
            self.memory.partitioners.learn(entries, number)
        entries = {at: entry for at, entry in entries.items() if at[0] != ROUTE}
        moves = self._moves(plan)
        bad = {why: seen[f"bad{i}"] for i, why in enumerate(reasons(self.bound))}
        bad |= {MAP_RAISED: seen["map"], AGGREGATE_RAISED: seen["failed"]}
        sizes = [seen.get(f"block{block}", 0) for block in range(self.blocks)] if moves else []
        tasks = task_reports(entries)
        if not any(sizes):
            sizes = [task.rows for task in tasks]
        mean = sum(sizes) / max(1, self.blocks if moves else len(sizes)) if sizes else 0
        self._given_to_map = sum(entry["rows"] for (stage, _), entry in entries.items() if stage == MAP)
        self._frequent = [entry["frequent"] for entry in entries.values() if "frequent" in entry]
        return batch_progress(
            number,
            rows=seen["rows"],
            keys=seen["keys"],
            late_rows=seen["late"],
            bad_rows={why: rows for why, rows in bad.items() if rows},
            blocks=self.blocks if moves else len(tasks),
            buckets=self.buckets,
            policy=plan.policy if plan else self.settings.partitioner.name if moves else "",
            statistics=source,
            plan=plan.metrics if plan else {},
            tasks=tasks,
            reduce_tasks=reduce_reports(entries),
            largest_over_mean=max(sizes) / mean if mean else 1.0,
            state_rows=seen["kept"] or 0,
        )

    def _refuse_bad_rows(self, rows: DataFrame, written: Written | None, report: Progress) -> None:
        """Do with the bad ones among rows after the map function, and among partials, what is to be done."""
        bad = self.settings.bad
        if not report.bad_rows:
            return
        failing = report.bad_rows.get(AGGREGATE_RAISED, 0)
        aggregated = report.rows - report.late_rows - sum(report.bad_rows.values()) + failing
        tried = {MAP_RAISED: self._given_to_map, AGGREGATE_RAISED: aggregated}
        reason = on_every_row(report, tried)
        if reason and bad.policy != "fail":
            mistake = "on every one of its %d rows, and none of them counts: a mistake of the program?"
            self._warn_once(report, reason, mistake, tried[reason])
        elif failing and self.program.builtins and bad.policy != "fail":
            beside = "on %d of its rows, which no Python aggregate counts; built-in ones (%s) still do"
            self._warn_once(report, AGGREGATE_RAISED, beside, failing, ", ".join(self.program.builtins))
        if bad.policy == "drop":
            return
        letters = refused(rows, self.bound)
        if written is not None and failing:
            letters = letters.unionByName(failed(self.partial_log.all_of(rows.sparkSession, written)))
        if bad.policy == "fail":
            if 0 < failing == aggregated:  # so that one of them is shown
                letters = letters.where(F.col("reason").startswith(AGGREGATE_FAILED))
            raise bad.complaint(self.title, report, letters, tried)
        bad.keep(letters, report.batch)

    def _warn_once(self, report: Progress, reason: str, words: str, *values: object) -> None:
        if words not in self._told:
            self._told.add(words)
            _LOG.warning(f"%s, batch %d: %s {words}", self.title, report.batch, reason, *values)

    def _carry(self, spark: SparkSession, written: Written, report: Progress) -> None:
        wanted = getattr(self.settings.partitioner, "needs_counts", False) and self.settings.statistics == "carried"
        if not wanted or report.statistics != "carried" or not report.state_rows:
            return
        reported = reported_counts(self._frequent, self.program.keys)
        if reported is None:
            partials = self.partial_log.all_of(spark, written).where(F.col(BAD).isNull())
            reported = frequent_in_log(partials, self.program.keys)
        self.carried.update(reported)

    def _watermark_text(self, commit: Commit) -> str | None:
        return instant_text(commit.watermark) if self.program.window is not None else None

    # -- observe and act

    @property
    def shows(self) -> frozenset[str]:
        """What `observe` has: how long a batch may take only where the query has an interval."""
        return OF_BATCHES if self.settings.interval else OF_BATCHES - {"batch.load"}

    def observe(self) -> Seen:
        """The batch that is being finished."""
        report, clock = self._ending
        return BatchObservation(
            number=report.batch,
            rows=report.rows,
            keys=report.keys,
            blocks=self.blocks,
            buckets=self.buckets,
            processing_seconds=clock.total(),
            interval_seconds=self.settings.interval,
            slots=self._context.defaultParallelism,
            planning_seconds=clock.phases.get("plan", 0.0),
            tasks=report.tasks,
            reduce_tasks=report.reduce_tasks,
        ).at(time.monotonic() - self._began)

    def apply(self, action: Action) -> float:
        """Other numbers of tasks from the next batch on, which disturbs nobody."""
        action.require_tasks_only(self.what)
        self.blocks = action.parallelism.get(BLOCKS, self.blocks)
        self.buckets = action.parallelism.get(BUCKETS, self.buckets)
        return 0.0

    def _finish(self, commit: Commit, report: Progress, clock: Clock) -> Progress:
        self._ending = report, clock
        decision = self._controller.look()
        if isinstance(self.settings.partitioner, Observing):
            self.settings.partitioner.observe(self._controller.seen)
        with clock.phase("commit"):
            counts = self.carried.to_text()
            memory = self.memory.keep(report.batch)
            self.last = replace(commit, blocks=self.blocks, buckets=self.buckets, counts=counts, policy=memory)
            self.state.commit(self.last)
            self.partial_log.keep(self.last.log)
        reason = decision.done.reason if decision and not decision.done.is_nothing else ""
        seconds = clock.phases | {"total": clock.total()}
        return self.feed.tell(report.more(seconds=seconds, decision=reason))

"""Exact similarity joins of streams, as one call and a few verbs."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from steelyard.control import Guard
from steelyard.core import OptionError, ScalingPolicy, tell_no_effect
from steelyard.core.durations import micros
from steelyard.similarity import Balancer, Metric, Trigger, Windows, balancing, counterexample
from steelyard.similarity import metric as named_metric
from steelyard.similarity.members import LEFT, RIGHT, SELF
from steelyard.spark.arrow import arrow_schema
from steelyard.spark.badrows import BadRows
from steelyard.spark.classic import require_classic
from steelyard.spark.description import Description
from steelyard.spark.engine import readable_name, start_query
from steelyard.spark.join_engine import JoinEngine, JoinSettings
from steelyard.spark.join_plan import Plan, shown
from steelyard.spark.join_program import JoinProgram, Run
from steelyard.spark.join_space import blocks_of, chosen_space, tell_blocks
from steelyard.spark.join_state import JoinCommit
from steelyard.spark.query import Query
from steelyard.spark.rows import quoted
from steelyard.spark.scratch import scratch
from steelyard.spark.sinks import sink as make_sink

FINER = 4
"""The least number of space partitions of a static join."""
SAMPLE = 60
"""Records of a static join that a user's own metric is tried on."""


@dataclass(frozen=True, repr=False)
class SimilarityJoin(Description):
    """A similarity join that is being described; each verb gives a new one. Made by `similarity_join`."""

    rows: DataFrame
    program: JoinProgram
    settings: JoinSettings
    _asked: Mapping[str, float]
    """`threshold` or `similarity`, as it was given."""
    _sink: tuple[str, dict[str, Any]] | None = None
    _checkpoint: str | None = None
    _trigger: dict[str, Any] = field(default_factory=dict)
    _name: str | None = None
    _metrics: tuple[int, str] | None = None

    def _facts(self) -> Mapping[str, object]:
        return {
            "metric": self.program.metric.name,
            **self._asked,
            "of": "one stream with itself" if self.program.self_join else "two streams",
            "workers": self.program.workers,
            "balance": self.settings.policy,
            "guards": ", ".join(map(repr, self.settings.guards)),
            "sink": self._sink and self._sink[0],
            "checkpoint": self._checkpoint,
            "name": self._name,
        }

    def balance(
        self,
        trigger: str | Trigger | ScalingPolicy,
        balancer: str | Balancer = "greedy",
        *,
        split: bool = False,
        guards: Sequence[Guard] = (),
    ) -> SimilarityJoin:
        """Move worksets between workers when `trigger` says so, as `balancer` plans it: objects, or names.

        `.balance("imbalance_above?limit=0.5", "bandit")`: `steelyard policies` has all of them. An object with a method
        `decide` is a whole policy, and needs no balancer. `split` also cuts a workset that has more than a worker's
        share of all load into pieces that can move. `guards` of `steelyard.control` bound what may be done, as
        `[Cooldown(60)]`.
        """
        policy = balancing(trigger, balancer, split)
        return replace(self, settings=replace(self.settings, policy=policy, guards=tuple(guards)))

    def on_bad_rows(self, policy: str, path: str | None = None) -> SimilarityJoin:
        """What happens to rows without id, time or a usable record: `"fail"`, `"drop"`, `"dead_letter"` with a path."""
        return replace(self, settings=replace(self.settings, bad=BadRows(policy, path)))

    def start(self) -> Query:
        """Check everything, and start the query."""
        if not self.rows.isStreaming:
            raise OptionError("start() needs streaming DataFrames (spark.readStream); for static ones use to_df()")
        if self._sink is None:
            raise OptionError("say where pairs go, for example .sink('console')")
        if self.program.windows is None:
            raise OptionError("a join of streams needs a window: similarity_join(..., window='1 minute')")
        spark = self.rows.sparkSession
        kind, options = self._sink
        target = make_sink(kind, ("left_id", "right_id"), spark, "append", options)
        checkpoint = self._checkpoint or scratch()
        if "://" not in checkpoint and not checkpoint.startswith("file:"):
            checkpoint = os.path.abspath(checkpoint)
        id_type = self.rows.schema["id"].dataType
        name = self._name or readable_name(f"similarity join, {self.program.metric.name}")
        engine = JoinEngine(spark, self.program, id_type, self.settings, target, checkpoint, self._signature())
        if self.settings.policy is not None and self.program.workers == 1:
            tell_no_effect("balance(...)", "one worker has all worksets", "give workers=2 or more")
        return self._start(lambda: start_query(engine, self.rows, checkpoint, self._trigger, name))

    def to_df(self) -> DataFrame:
        """The pairs of static DataFrames. Lazy, but for the sample that space partitions are chosen from.

        A row that cannot be joined makes the job that reads the pairs fail, or is left out with `on_bad_rows("drop")`.
        """
        if self.rows.isStreaming:
            raise OptionError("to_df() is for static DataFrames; for streaming ones use start()")
        self.settings.bad.refuse_letters()
        # Nothing is kept and nothing moves, so that a space partition is a task: finer ones have fewer worksets to try.
        program = replace(self.program, parts=max(self.program.workers, FINER))
        space = chosen_space(self.rows, program, self.settings.space, self.settings.seed)
        if space is None:
            raise OptionError("there is no record to join: every row lacks one, or none can be read by the metric")
        program = replace(program, dimension=space.dimension, parts=len(space.centroids))
        plan, commit = Plan(self.rows, program, space.centroids, timed=False), JoinCommit()
        if space.copies:
            tell_blocks(program, space.copies)
            blocks = blocks_of(program)
            commit = replace(commit, splits=blocks.splits, assignment=blocks.assignment)
        run = Run(strict=self.settings.bad.policy == "fail")
        return shown(plan.pairs(self.rows, commit, run, None), program, None)

    def _signature(self) -> dict[str, Any]:
        program, windows = self.program, self.program.windows
        assert windows is not None
        return {
            "metric": program.metric.name,
            "threshold": program.t,
            "self_join": program.self_join,
            "window": [windows.length, windows.slide],
            "workers": program.workers,
            "id": self.rows.schema["id"].dataType.simpleString(),
            "item": self.rows.schema["item"].dataType.simpleString(),
            "space": [self.settings.space, self.settings.seed],
            "balanced_ids": program.balanced_ids,
            "crowd": program.crowd,
        }


def similarity_join(
    left: DataFrame,
    right: DataFrame | None = None,
    *,
    on: str,
    id: str,
    metric: str | Metric | Callable[[Any, Any], float] = "angular",
    threshold: float | None = None,
    similarity: float | None = None,
    time: str | None = None,
    window: str | None = None,
    slide: str | None = None,
    watermark: str = "0 seconds",
    workers: int | None = None,
    space: str = "random",
    seed: int = 42,
    balanced_ids: bool = False,
    retire_after: int | None = None,
    crowd: int | None = None,
    max_bytes: int | None = None,
    distances: bool = True,
) -> SimilarityJoin:
    """All pairs of records that are near to each other: exactly, each once, over streams or static DataFrames.

    Parameters
    ----------
    left, right
        Two DataFrames with the same columns; without `right`, one is joined with itself.
    on, id
        The column to compare (an array of numbers, or text), and the one that tells rows apart.
    metric
        `"angular"`, `"cosine"`, `"euclidean"`, `"manhattan"`, `"chebyshev"`, `"hamming"`, `"jaccard"`, `"edit"`,
        or a function of two records: symmetric, and no detour shorter than the way itself.
    threshold, similarity
        The largest distance of a pair; or, for metrics between 0 and 1, the least similarity, 1 - distance.
    time, window, slide, watermark
        Event-time column, length and slide of windows, and how late a row may come. Two records meet if a window
        holds both. Without `time`, a row's time is that of its batch.
    workers
        How many tasks join; also the number of space partitions, of which a static join has four at least. The
        number of slots where none is given.
    space, seed
        How the space is cut: `"random"` centroids, or `"farthest"` points of the first batch, better for clustered
        data and always used for text.
    balanced_ids, retire_after, crowd, max_bytes, distances
        Worksets take turns in hosting pairs; worksets without records for so many windows are forgotten; records with
        more than so many worksets around them are compared with all (vectors of many dimensions, which have all others
        around them); bound on a worker's memory; False saves computing the distances of pairs that need none.

    Notes
    -----
    As in `similarity_join(events, on="vector", id="id", similarity=0.99, time="at", window="1 minute")`, followed by
    `.sink("parquet", path="pairs").checkpoint("checkpoint").start()`.
    """
    measure, columns = named_metric(metric), {"on": on, "id": id, "time": time}
    t = _threshold(measure, threshold, similarity)
    rows = _rows(left, right, measure, columns)
    windows = _windows(window, slide, timed=time is not None or left.isStreaming)
    count = _workers(workers, left)
    program = JoinProgram(
        measure, t, right is None, windows, count, count, None, balanced_ids, retire_after, crowd, max_bytes, distances
    )
    if not isinstance(metric, str) and not left.isStreaming:
        _try(measure, left, on)
    settings = JoinSettings(space, seed, micros(watermark, "watermark") if watermark else 0)
    asked = {"threshold": threshold, "similarity": similarity}
    return SimilarityJoin(rows, program, settings, {name: value for name, value in asked.items() if value is not None})


def _rows(left: DataFrame, right: DataFrame | None, measure: Metric, columns: Mapping[str, str | None]) -> DataFrame:
    """The rows of both sides, each with its side, id, time and record; OptionError where a column does not fit."""
    sides: dict[str, DataFrame] = {"left": left} if right is None else {"left": left, "right": right}
    on, key, time = str(columns["on"]), str(columns["id"]), columns["time"]
    for side, frame in sides.items():
        require_classic(frame, "sy.similarity_join")
        _require_columns(side, frame, columns)
        _require_records(measure, frame, on)
    if right is None:
        return _side(left, SELF, on, key, time)
    return _union(_side(left, LEFT, on, key, time), _side(right, RIGHT, on, key, time))


def _workers(workers: int | None, rows: DataFrame) -> int:
    """As many as were asked for, or as there are slots."""
    if workers is not None and workers < 1:
        raise OptionError(f"workers must be at least 1, got {workers}")
    return workers or rows.sparkSession.sparkContext.defaultParallelism


def _windows(window: str | None, slide: str | None, timed: bool) -> Windows | None:
    """OptionError for windows over rows that have no time."""
    if slide is not None and window is None:
        raise OptionError("slide goes with a window: similarity_join(..., window='1 minute', slide='10 seconds')")
    if window is None:
        return None
    if not timed:
        raise OptionError("windows over static DataFrames need a time column: similarity_join(..., time='column')")
    return Windows(micros(window, "window"), micros(slide, "slide") if slide is not None else 0)


def _require_columns(side: str, frame: DataFrame, asked: Mapping[str, str | None]) -> None:
    """OptionError for a column that is not there."""
    for option, column in asked.items():
        if column is not None and column not in frame.columns:
            raise OptionError.unknown(f"column for {option} of the {side} DataFrame", column, frame.columns)


def _threshold(measure: Metric, threshold: float | None, similarity: float | None) -> float:
    if (threshold is None) == (similarity is None):
        raise OptionError("give either threshold, the largest distance of a pair, or similarity, the least one")
    given: dict[str, Any] = {"threshold": threshold, "similarity": similarity}
    for option, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise OptionError(f"{option} must be a number, as in {option}=0.9, got {value!r}")
    if similarity is not None:
        if not measure.normal:
            raise OptionError(f"metric {measure.name!r} has no similarity from 0 to 1: give threshold, a distance")
        return measure.threshold_of(similarity)
    assert threshold is not None
    return measure.threshold(threshold)


def _require_records(measure: Metric, rows: DataFrame, on: str) -> None:
    """OptionError for a column whose type the metric cannot read; the values are not looked at."""
    column = arrow_schema(T.StructType([rows.schema[on]])).field(0)
    try:
        measure.records(pa.array([], column.type))
    except OptionError as error:
        raise OptionError(f"column {on!r}: {error}") from error


def _side(rows: DataFrame, side: int, on: str, key: str, time: str | None) -> DataFrame:
    at: Column = F.unix_micros(F.current_timestamp() if time is None else quoted(time).cast("timestamp"))
    if time is None and not rows.isStreaming:
        at = F.lit(0).cast("bigint")
    return rows.select(
        F.lit(side).cast("tinyint").alias("side"), quoted(key).alias("id"), at.alias("at"), quoted(on).alias("item")
    )


def _union(left: DataFrame, right: DataFrame) -> DataFrame:
    for name, what in (("id", "id"), ("item", "on")):
        kinds = [frame.schema[name].dataType for frame in (left, right)]
        if kinds[0].simpleString() != kinds[1].simpleString():
            raise OptionError(
                f"column for {what}: {kinds[0].simpleString()} on the left, {kinds[1].simpleString()} on the right; "
                "cast one of them"
            )
    if left.isStreaming != right.isStreaming:
        raise OptionError("both DataFrames must be streams, or both static")
    return left.union(right)


def _try(measure: Metric, rows: DataFrame, on: str) -> None:
    """Warn where a metric of the user's breaks a law on a few records."""
    sample = rows.select(quoted(on).alias("item")).where("item is not null").limit(SAMPLE).toArrow()
    records, bad = measure.records(sample.column("item"))
    broken = counterexample(measure, measure.take(records, (~bad).nonzero()[0]))
    if broken:
        warnings.warn(f"{broken}: pairs may be missing", stacklevel=3)

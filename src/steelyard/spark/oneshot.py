"""The same aggregation over a static DataFrame, as one batch without state."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from steelyard.core import KeyCounts
from steelyard.spark.combine import ROWS
from steelyard.spark.microbatch import Settings
from steelyard.spark.partials import Partials
from steelyard.spark.placement import placed
from steelyard.spark.program import Bound
from steelyard.spark.rows import BAD, mapped, tidied
from steelyard.spark.statistics import exact_counts
from steelyard.spark.windows import merged_windows


def aggregate_once(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """All results of a static DataFrame. Lazy, but for the counts that a partitioner needs.

    Bad rows are dropped unless the settings say `fail`: then the job that evaluates the result raises.
    """
    program = bound.program
    how = Partials(rows.sparkSession, bound)
    before = settings.moves_rows(bound) and bound.places_before_map
    if program.map is not None and not before:
        rows = mapped(rows, program.map, None)
    if settings.moves_rows(bound):
        listed = settings.partitioner.needs_counts and bound.keys_can_be_listed
        counts = exact_counts(rows, program.keys) if listed else KeyCounts.of({})
        plan = settings.partitioner.plan(counts, settings.blocks)
        time = program.time if program.time in rows.columns else None
        rows = placed(rows, plan, program.keys, time)
    if program.map is not None and before:
        rows = mapped(rows, program.map, None)
    tidy = tidied(rows, bound, None)
    if settings.bad.policy == "fail":
        complaint = F.concat(F.lit("a row cannot be processed: "), F.col(BAD))
        tidy = tidy.where(F.when(F.col(BAD).isNull(), F.lit(True)).otherwise(F.raise_error(complaint).cast("boolean")))
    partials = how.of_rows(tidy.where(f"{BAD} is null"), settings.buckets, None, 1)
    if settings.bad.policy == "fail" and program.pythons:
        complaint = F.concat(F.lit("a row cannot be processed: "), F.col(BAD))
        partials = partials.where(
            F.when(F.col(BAD).isNull(), F.lit(True)).otherwise(F.raise_error(complaint).cast("boolean"))
        )
    live = partials.where(F.col(BAD).isNull() & F.col(ROWS).isNotNull())
    return how.finished(merged_windows(live, how, None), listed=True)

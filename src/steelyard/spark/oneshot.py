"""The same aggregation over a static DataFrame, as one batch without state."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from steelyard.core import KeyCounts
from steelyard.spark.microbatch import Settings
from steelyard.spark.partials import Partials
from steelyard.spark.placement import placed
from steelyard.spark.program import Bound
from steelyard.spark.rows import BAD, BLOCK, SPLIT, mapped, tidied
from steelyard.spark.statistics import exact_counts
from steelyard.spark.windows import merged_windows


def aggregate_once(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """All results of a static DataFrame. Lazy, but for the counts that a partitioner needs.

    Bad rows are dropped unless the settings say `fail`: then the job that evaluates the result raises.
    """
    how = Partials(rows.sparkSession, bound)
    clean = _checked(tidied(_rows(rows, bound, settings), bound, None), settings)
    if how.reduced_is_merged:
        merged = how.reduced(clean, settings.buckets)
        return how.finished(_checked(merged, settings) if BAD in merged.columns else merged)
    partials = _checked(how.of_rows(clean, settings.buckets, None, 1), settings)
    return how.finished(merged_windows(partials, how, None))


def _rows(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """Rows after the map function, in their blocks where they move."""
    program = bound.program
    moves = settings.moves_rows(bound)
    before = moves and bound.places_before_map
    if program.map is not None and not before:
        rows = mapped(rows, program.map, None)
    if moves:
        listed = settings.partitioner.needs_counts and bound.keys_can_be_listed
        counts = exact_counts(rows, program.keys) if listed else KeyCounts.of({})
        plan = settings.partitioner.plan(counts, settings.blocks)
        rows = placed(rows, plan, program.keys, program.time if program.time in rows.columns else None)
    return mapped(rows.drop(BLOCK, SPLIT), program.map, None) if program.map is not None and before else rows


def _checked(rows: DataFrame, settings: Settings) -> DataFrame:
    """Rows without bad ones; where the settings say `fail`, the first bad one makes its task raise."""
    good = F.col(BAD).isNull()
    if settings.bad.policy != "fail":
        return rows.where(good)
    complaint = F.concat(F.lit("a row cannot be processed: "), F.col(BAD))
    return rows.where(F.when(good, F.lit(True)).otherwise(F.raise_error(complaint).cast("boolean")))

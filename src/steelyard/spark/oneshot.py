"""The same program over a static DataFrame, as one batch without state."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from steelyard.core import KeyCounts, Observing, Partitioner, Placer, RowRule
from steelyard.core.hidden import BAD, BLOCK, ITEM, SPLIT
from steelyard.partition.prompt import Prompt
from steelyard.spark.isolate import COMPLAINT
from steelyard.spark.partials import Partials
from steelyard.spark.placement import partitions, placed
from steelyard.spark.program import Bound
from steelyard.spark.routing import Partitioners
from steelyard.spark.rows import judged, mapped, quoted, reasons, tidied
from steelyard.spark.settings import Settings
from steelyard.spark.statistics import FREQUENT, exact_counts
from steelyard.spark.windows import merged_windows, with_states

TOGETHER_BYTES = 64 << 20
"""Partitions are read together as long as they have no more, by Spark's own estimate: half of what it reads at once."""


def aggregate_once(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """All results of a static DataFrame. Lazy, but for the counts that a partitioner needs.

    Bad rows are dropped unless the settings say `fail`: then the job that evaluates the result raises.
    """
    if _is_plain_sparks(bound, settings):
        return _by_plain_spark(rows, bound, settings)
    if not bound.program.aggregates:
        mapped_rows = judged(_rows(rows, bound, settings), bound)
        return _checked(mapped_rows, settings).select(*(quoted(name) for name in bound.rows.names))
    how = Partials(rows.sparkSession, bound, settings.allocator)
    made = _rows(rows, bound, settings)
    if how.reduced_is_merged and bound.program.pythons and not (bound.program.time or BAD in made.columns):
        return how.results_of(made, settings.buckets, settings.bad.policy)  # which looks for keys that are null
    clean = _checked(tidied(made, bound, None), settings)
    if how.reduced_is_merged:
        return how.results_of(clean, settings.buckets, settings.bad.policy)
    partials = _checked(how.of_rows(clean, settings.buckets, None, 1), settings)
    return how.finished(with_states(merged_windows(partials, how, None), how))


def _is_plain_sparks(bound: Bound, settings: Settings) -> bool:
    """Whether plain Spark does just this: nothing moves, nothing is Python, no windows, nothing is parsed."""
    program = bound.program
    simple = not (program.map or program.pythons or program.window or bound.parsed or settings.moves_rows(bound))
    return simple and all(use.is_plain for use in program.builtins.values())


def _by_plain_spark(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """Spark's own aggregation, with bad rows treated as the settings say."""
    rows = _sound(rows, bound, settings)
    values = {name: quoted(use.column) if use.column else F.lit(1) for name, use in bound.program.builtins.items()}
    states = [use.plain(values[name]).alias(name) for name, use in bound.program.builtins.items()]
    return rows.groupBy(*(quoted(key) for key in bound.program.keys)).agg(*states)


def _sound(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """Rows, with no column more, without those that can be refused in the JVM; or it raises, as the settings say."""
    for reason, test in reasons(bound).items():
        refusal = F.raise_error(F.lit(COMPLAINT + reason)).isNull() if settings.bad.policy == "fail" else F.lit(False)
        rows = rows.where(~test | refusal)
    return rows


def _moves(rows: DataFrame, bound: Bound, settings: Settings) -> bool:
    """Whether rows go to planned blocks.

    The partitions of static rows are blocks already: Spark cuts files into even ones, and a hot key's rows are
    spread over them as they lie. Where the user named no policy, moving rows pays only to keep more slots busy.
    """
    if settings.is_decided or not settings.moves_rows(bound):
        return settings.moves_rows(bound)
    return partitions(rows) < settings.blocks


def _rows(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """Rows after the map function, in their blocks where they move."""
    program = bound.program
    moves = _moves(rows, bound, settings)
    if not moves and program.map is None and program.pythons:
        rows = _together(rows, settings.blocks)
    before = moves and (bound.places_before_map or isinstance(settings.partitioner, Placer))
    if program.map is not None and not before:
        rows = mapped(rows, program.map, None)
    if moves:
        rows = _in_blocks(rows, bound, settings)
    return mapped(rows.drop(BLOCK, SPLIT, ITEM), program.map, None) if program.map is not None and before else rows


def _together(rows: DataFrame, slots: int) -> DataFrame:
    """Rows in a partition for each slot, where they are in more, and few: a key is then added up in fewer tasks."""
    if partitions(rows) <= slots:
        return rows
    size = int(str(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return rows.coalesce(slots) if size <= TOGETHER_BYTES * slots else rows


def _in_blocks(rows: DataFrame, bound: Bound, settings: Settings) -> DataFrame:
    """Rows where the policy plans or routes them."""
    program, policy = bound.program, settings.partitioner if settings.is_decided else Prompt()
    if not isinstance(policy, Partitioner):
        return Partitioners(policy).placed(rows, program.keys, settings.blocks, 0, None)
    # A policy that learns from batches has none to go by, and is asked without counts.
    listed = policy.needs_counts and bound.keys_can_be_listed and not isinstance(policy, Observing)
    counts = exact_counts(rows, program.keys).top(FREQUENT) if listed else KeyCounts.of({})
    plan = policy.plan(counts, settings.blocks)
    if plan.rule is RowRule.IN_PLACE:
        return rows
    return placed(rows, plan, program.keys, program.time if program.time in rows.columns else None)


def _checked(rows: DataFrame, settings: Settings) -> DataFrame:
    """Rows without bad ones; where the settings say `fail`, the first bad one makes its task raise."""
    if settings.bad.policy != "fail":
        return rows.where(f"{BAD} is null")
    return rows.where(f"if({BAD} is null, true, cast(raise_error(concat('{COMPLAINT}', {BAD})) as boolean))")

"""Policies that a description names and that will have nothing to decide: found when a query starts, and told."""

from __future__ import annotations

from steelyard.core import Moves, Partitioner, tell_no_effect
from steelyard.core.notices import ROWS_STAY
from steelyard.scaling import Fixed
from steelyard.spark.aggregates import Collect
from steelyard.spark.program import Bound
from steelyard.spark.settings import Settings

LEFT = "partition_by({policy!r}) leaves rows where they are read"
MOVE = "name a policy that moves them, as in partition_by('prompt')"


def tell_idle(bound: Bound, settings: Settings) -> None:
    """Tell what the micro-batch engine will make no use of; also for a static DataFrame."""
    policy, moves = settings.partitioner, settings.moves_rows(bound)
    program = bound.program
    ordered = any(isinstance(use, Collect) for use in program.builtins.values())
    if program.aggregates and program.time is not None and program.window is None and not ordered:
        tell_no_effect("with_watermark(...)", "there is no window; it only refuses rows without a time")
    stay = (LEFT.format(policy=policy.name), "leave it out") if Moves.of(policy) is Moves.NEVER else (ROWS_STAY, MOVE)
    if not isinstance(settings.elastic, Fixed) and not moves:
        tell_no_effect(
            f"the number of blocks that elastic({getattr(settings.elastic, 'name', settings.elastic)!r}) chooses", *stay
        )
    if settings.statistics == "exact" and not (moves and getattr(policy, "needs_counts", False)):
        tell_no_effect("statistics('exact')", f"policy {policy.name!r} looks at no counts" if moves else stay[0])
    if not settings.is_planned or not moves:  # `auto` and `in_place` have decided
        return
    what = f"partition_by({policy.name!r})"
    if settings.blocks == 1 and isinstance(settings.elastic, Fixed):
        tell_no_effect(what, "there is one block", "give more, as in partition_by(..., blocks=4)")
    elif isinstance(policy, Partitioner) and policy.needs_counts and not bound.keys_can_be_listed:
        kinds = ", ".join(f"{key} {bound.rows[key].dataType.simpleString()}" for key in bound.program.keys)
        tell_no_effect(what, f"keys of such a type cannot be listed in a plan ({kinds}), and go by hash")

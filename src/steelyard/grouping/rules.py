"""The rule of a grouping for compiled loops, with what most groupings leave as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steelyard.kernels.osg_state import Rule

NEVER = 1 << 62
"""A window that never fills: nothing is learnt."""


def rule_of(kind: int, instances: int, **chosen: Any) -> Rule:
    """A rule with the values of `chosen`, and otherwise what a grouping has that learns nothing."""
    from steelyard.kernels.osg_state import Rule  # noqa: PLC0415 - slow to import

    usual = {
        "window": NEVER,
        "tolerance": 0.0,
        "masked": True,
        "elapsed": True,
        "resync": 0,
        "apart": 0.0,
        "mean_unseen": True,
        "on_change": False,
        "keep": 0.0,
        "conservative": False,
        "idle_aware": False,
        "continuous": False,
        "shared": False,
        "reshuffle": False,
        "seed": 0,
        "columns": 1,
    }
    return Rule(kind=kind, instances=instances, turns=instances, schedulers=1, **{**usual, **chosen})

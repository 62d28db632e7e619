"""Placement policies by name, with parameters: `"default"`."""

from __future__ import annotations

from steelyard.core.measured import PlacementPolicy
from steelyard.core.registry import Family

PLACEMENTS: Family[PlacementPolicy] = Family(
    "steelyard.placement",
    "placement policy",
    "Which machine each thread of an application runs on, and, by some, how many threads there are",
    ("place",),
    lambda kind: ("simulator",),
)


def placement_names() -> list[str]:
    """The names that `placement` knows."""
    return PLACEMENTS.names()


def placement(named: str | PlacementPolicy) -> PlacementPolicy:
    """A policy from its name, with parameters behind a question mark; an object is given back as it is.

    >>> placement("default")
    Default()
    """
    return PLACEMENTS.named(named)

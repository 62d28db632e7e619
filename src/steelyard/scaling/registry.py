"""Elasticity policies by name, with parameters: `"zones"`, `"zones?patience=1&increment=proportional"`."""

from __future__ import annotations

from typing import Any

from steelyard.core import ScalingPolicy
from steelyard.core.registry import Family

ELASTICITY: Family[ScalingPolicy] = Family(
    "steelyard.scaling",
    "elasticity policy",
    ".elastic(...) and autoscale(...): how many tasks a batch has, how many instances an operator",
    ("decide",),
    lambda kind: ("simulator",) if "operators" in _needs(kind) else ("microbatch", "groups", "simulator"),
)


def _needs(kind: type[Any]) -> tuple[str, ...]:
    """What every policy of a class needs to see; what depends on parameters is looked at when there is an object."""
    needs = getattr(kind, "needs", ())
    return needs if isinstance(needs, tuple) else ()


def elasticity_names() -> list[str]:
    """The names that `elasticity` knows."""
    return ELASTICITY.names()


def elasticity(named: str | ScalingPolicy) -> ScalingPolicy:
    """A policy from its name, with parameters behind a question mark; an object is given back as it is.

    >>> elasticity("zones?patience=1").patience
    1
    >>> elasticity("ds2?overprovisioning=0").needs
    ('operators', 'arrivals')
    """
    return ELASTICITY.named(named)

"""Elasticity policies by name, with parameters: `"zones"`, `"zones?patience=1&increment=proportional"`."""

from __future__ import annotations

from steelyard.core import ElasticityPolicy
from steelyard.core.registry import Family

ELASTICITY: Family[ElasticityPolicy] = Family(
    "steelyard.scaling",
    "elasticity policy",
    ".elastic(...): how many tasks a batch has",
    ("decide",),
    lambda kind: ("microbatch", "groups", "simulator"),
)


def elasticity_names() -> list[str]:
    """The names that `elasticity` knows."""
    return ELASTICITY.names()


def elasticity(named: str | ElasticityPolicy) -> ElasticityPolicy:
    """A policy from its name, with parameters behind a question mark; an object is given back as it is.

    >>> elasticity("zones?patience=1").patience
    1
    >>> elasticity("zone")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown elasticity policy 'zone': did you mean 'zones'? There are: fixed, zones
    """
    return ELASTICITY.named(named)

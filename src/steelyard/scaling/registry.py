"""Elasticity policies by name, with parameters: `"zones"`, `"zones?patience=1&increment=proportional"`."""

from __future__ import annotations

from typing import Any

from steelyard.core import ScalingPolicy
from steelyard.core.needs import OF_BATCHES, OF_JOBS, OF_SCENARIOS
from steelyard.core.registry import Family

_RUNS = (
    ("microbatch", OF_BATCHES),
    ("groups", OF_BATCHES),
    ("resident", OF_JOBS),
    ("simulator", OF_BATCHES),
    ("simulator", OF_SCENARIOS),
)
"""Whose numbers of tasks or instances can be changed, and what it shows."""


def _runs(kind: type[Any]) -> tuple[str, ...]:
    """Where a policy of a class sees all that it needs, with the parameters that it has where none are given."""
    needs = getattr(kind, "needs", ())
    if isinstance(needs, property):  # it depends on parameters
        needs = kind().needs
    return tuple(dict.fromkeys(engine for engine, shows in _RUNS if shows.issuperset(needs)))


ELASTICITY: Family[ScalingPolicy] = Family(
    "steelyard.scaling",
    "elasticity policy",
    ".elastic(...) and autoscale(...): how many tasks a batch has, how many instances an operator",
    ("decide",),
    _runs,
)


def elasticity_names() -> list[str]:
    """The names that `elasticity` knows."""
    return ELASTICITY.names()


def those_that_see(shows: frozenset[str]) -> list[str]:
    """The names of policies that need something, and all of it is shown.

    >>> those_that_see(OF_JOBS - {"arrivals", "weights"})
    ['hpa_cpu']
    """
    needs = {name: getattr(one.kind, "needs", ()) for name, one in ELASTICITY.entries.items()}
    return [name for name, needed in needs.items() if isinstance(needed, tuple) and needed and shows.issuperset(needed)]


def elasticity(named: str | ScalingPolicy) -> ScalingPolicy:
    """A policy from its name, with parameters behind a question mark; an object is given back as it is.

    >>> elasticity("zones?patience=1").patience
    1
    >>> elasticity("ds2?overprovisioning=0").needs
    ('operators', 'arrivals')
    """
    return ELASTICITY.named(named)

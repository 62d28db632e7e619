"""Elasticity policies by name, with parameters: `"zones"`, `"zones?patience=1&increment=proportional"`."""

from __future__ import annotations

from typing import Any

from steelyard.core import ElasticityPolicy, OptionError
from steelyard.core.names import named as object_named
from steelyard.scaling.fixed import Fixed
from steelyard.scaling.zones import Zones

_POLICIES: dict[str, type[Any]] = {kind.name: kind for kind in (Fixed, Zones)}


def elasticity_names() -> list[str]:
    """The names that `elasticity` knows."""
    return sorted(_POLICIES)


def elasticity(named: str | ElasticityPolicy) -> ElasticityPolicy:
    """A policy from its name, with parameters behind a question mark; an object is given back as it is.

    >>> elasticity("zones?patience=1").patience
    1
    >>> elasticity("zone")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown elasticity policy 'zone': did you mean 'zones'? There are: fixed, zones
    """
    if not isinstance(named, str):
        if isinstance(named, type) or not isinstance(named, ElasticityPolicy):
            raise OptionError(f"elastic needs a name or an object with `decide`, got {named!r}")
        return named
    made: ElasticityPolicy = object_named("elasticity policy", named, _POLICIES)
    return made

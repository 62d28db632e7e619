"""Groupings by name, with parameters: `"round_robin"`, `"osg"`, `"osg?epsilon=0.05&clock=cumulated"`."""

from __future__ import annotations

from typing import Any

from steelyard.core import OptionError
from steelyard.core.names import named as object_named
from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.full_knowledge import FullKnowledge
from steelyard.grouping.osg import OSG
from steelyard.grouping.round_robin import RoundRobin
from steelyard.grouping.storm_shuffle import StormShuffle
from steelyard.grouping.tracking import TrackingOSG

_KINDS: tuple[type[Any], ...] = (FullKnowledge, OSG, RoundRobin, StormShuffle, TrackingOSG)
_GROUPINGS: dict[str, type[Any]] = {kind.name: kind for kind in _KINDS}


def grouping_names() -> list[str]:
    """The names that `grouping` knows."""
    return sorted(_GROUPINGS)


def grouping(named: str | CompiledGrouping) -> CompiledGrouping:
    """A grouping from its name, with parameters behind a question mark; an object is given back as it is.

    >>> grouping("full_knowledge?idle_aware=true")
    FullKnowledge(idle_aware=True)
    >>> grouping("ogs")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown grouping 'ogs': did you mean 'osg'? There are: ...
    """
    if not isinstance(named, str):
        if not isinstance(named, CompiledGrouping):
            raise OptionError(f"a grouping is a name or an object with `scheduler` and `instance`, got {named!r}")
        return named
    made: CompiledGrouping = object_named("grouping", named, _GROUPINGS)
    return made

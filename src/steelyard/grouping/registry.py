"""Groupings by name, with parameters: `"round_robin"`, `"osg"`, `"osg?epsilon=0.05&clock=cumulated"`."""

from __future__ import annotations

from typing import Any

from steelyard.core import OptionError
from steelyard.core.registry import Family
from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.osg import OSG


def _runs(kind: type[Any]) -> tuple[str, ...]:
    if kind.needs_costs:  # which an engine cannot know
        return ("simulator",)
    return ("microbatch", "resident", "simulator") if kind is OSG else ("resident", "simulator")


GROUPINGS: Family[CompiledGrouping] = Family(
    "steelyard.grouping",
    "grouping",
    "shuffle(...) of resident workers and simulations: which of several equal instances a row goes to",
    ("scheduler", "instance"),
    _runs,
)


def grouping_names() -> list[str]:
    """The names that `grouping` knows."""
    return GROUPINGS.names()


def grouping(named: str | CompiledGrouping) -> CompiledGrouping:
    """A grouping from its name, with parameters behind a question mark; an object is given back as it is.

    >>> grouping("full_knowledge?idle_aware=true")
    FullKnowledge(idle_aware=True)
    >>> grouping("ogs")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown grouping 'ogs': did you mean 'osg'? There are: ...
    """
    if not isinstance(named, str | CompiledGrouping):
        raise OptionError(f"a grouping is a name or an object with `scheduler` and `instance`, got {named!r}")
    return GROUPINGS.named(named)

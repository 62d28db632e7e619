"""Groupings by name, with parameters: `"round_robin"`, `"osg"`, `"osg?epsilon=0.05&clock=cumulated"`."""

from __future__ import annotations

from typing import Any

from steelyard.core import OptionError
from steelyard.core.registry import Family
from steelyard.grouping.protocol import Grouping, needs_costs, needs_queues


def _runs(kind: type[Any]) -> tuple[str, ...]:
    if needs_costs(kind) or needs_queues(kind):  # type: ignore[arg-type]  # it says so of all
        return ("simulator",)
    return ("microbatch", "resident", "simulator")


GROUPINGS: Family[Grouping] = Family(
    "steelyard.grouping",
    "grouping",
    ".shuffle(...), .partition_by(...), edges of simulations: which of several equal instances a row goes to",
    ("scheduler", "instance"),
    _runs,
)


def grouping_names() -> list[str]:
    """The names that `grouping` knows."""
    return GROUPINGS.names()


def grouping(named: str | Grouping) -> Grouping:
    """A grouping from its name, with parameters behind a question mark; an object is given back as it is.

    >>> grouping("full_knowledge?idle_aware=true")
    FullKnowledge(idle_aware=True)
    >>> grouping("ogs")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown grouping 'ogs': did you mean 'osg'? There are: ...
    """
    if isinstance(named, type) or not isinstance(named, str | Grouping):
        raise OptionError(f"a grouping is a name or an object with `name`, `scheduler` and `instance`, got {named!r}")
    return GROUPINGS.named(named)


def is_grouping(named: object) -> bool:
    """Whether something names a grouping, or is one.

    >>> is_grouping("osg?cost_of=customer"), is_grouping("prompt")
    (True, False)
    """
    if isinstance(named, str):
        return named.partition("?")[0] in GROUPINGS.entries
    return isinstance(named, Grouping) and not isinstance(named, type)

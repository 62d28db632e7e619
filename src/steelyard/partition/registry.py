"""Partitioners by name, with parameters: `"prompt"`, `"prompt?residual_order=insertion"`, `"dalton?epsilon=0.05"`.

A policy decides a batch at once (`Partitioner`) or row by row (`TuplePolicy`); each can stand in for the other.
"""

from __future__ import annotations

from steelyard.core import Observing, Partitioner, TuplePolicy
from steelyard.core.registry import Family

Policy = Partitioner | TuplePolicy

PARTITIONERS: Family[Policy] = Family(
    "steelyard.partition",
    "partitioner",
    ".partition_by(...), key_by(..., grouping=...): which block or instance a row goes to",
    ("plan", "router"),
    lambda kind: ("microbatch", *(() if hasattr(kind, "synchronise") else ("groups", "resident")), "simulator"),
    # what partitioners tell each other is carried by the driver, between batches
)


def partitioner_names() -> list[str]:
    """Names of policies that go by keys; `Stream.partition_by` knows `osg` too, which goes by costs."""
    return PARTITIONERS.names()


def policy(named: str | Policy) -> Policy:
    """A policy from its name, with parameters behind a question mark; an object is given back as it is.

    >>> policy("prompt?residual_order=insertion")
    Prompt(residual_order='insertion', zigzag_start='restart')
    >>> policy("promt")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown partitioner 'promt': did you mean 'prompt'? There are: ...
    """
    return PARTITIONERS.named(named)


def partitioner(named: str | Policy) -> Partitioner:
    """A policy that plans batches; one that decides row by row plans by routing the rows of the counts."""
    from steelyard.partition.adapters import PlannedByRouting  # noqa: PLC0415 - the adapters know the registry's kinds

    found = policy(named)
    return found if isinstance(found, Partitioner) else PlannedByRouting(found)


def tuple_policy(named: str | Policy) -> TuplePolicy:
    """A policy that decides row by row; one that plans batches routes each batch by a plan of its rows."""
    from steelyard.partition.adapters import RoutedByPlan  # noqa: PLC0415 - the adapters know the registry's kinds

    found = policy(named)
    return found if isinstance(found, TuplePolicy) else RoutedByPlan(found)


def edge_policy(named: str | Policy) -> TuplePolicy:
    """A policy for rows that come without an end; one that plans and observes plans by what it has seen.

    >>> edge_policy("auto")
    RoutedByCarriedPlan(partitioner=Auto(candidates='in_place,hash,prompt,shuffle', retry_every=50, memory=0.8))
    """
    from steelyard.partition.carried import RoutedByCarriedPlan  # noqa: PLC0415 - as above

    found = policy(named)
    if isinstance(found, Partitioner) and isinstance(found, Observing) and not isinstance(found, TuplePolicy):
        return RoutedByCarriedPlan(found)
    return tuple_policy(found)

"""Policies by name, with parameters: `"prompt"`, `"prompt?residual_order=insertion"`, `"dalton?epsilon=0.05"`.

A policy decides a batch at once (`Partitioner`) or row by row (`TuplePolicy`); each can stand in for the other.
"""

from __future__ import annotations

from typing import Any

from steelyard.core import OptionError, Partitioner, TuplePolicy
from steelyard.core.names import named as object_named
from steelyard.partition.affinity import Affinity
from steelyard.partition.auto import Auto
from steelyard.partition.cardinality import Cardinality
from steelyard.partition.cooperation import CooperativeDalton
from steelyard.partition.d_choices import DChoices
from steelyard.partition.dagreedy import DAGreedy
from steelyard.partition.dalton import Dalton
from steelyard.partition.first_fit import FirstFitDecreasing
from steelyard.partition.fragmentation import FragmentationMinimisation
from steelyard.partition.hash import Hash
from steelyard.partition.in_place import InPlace
from steelyard.partition.post_sort import PostSort
from steelyard.partition.prompt import Prompt
from steelyard.partition.shuffle import Shuffle
from steelyard.partition.time import TimeBased
from steelyard.partition.two_choices import ManyChoices, TwoChoices
from steelyard.partition.w_choices import WChoices

Policy = Partitioner | TuplePolicy

_KINDS: tuple[type[Any], ...] = (
    Affinity,
    Auto,
    Cardinality,
    CooperativeDalton,
    DAGreedy,
    DChoices,
    Dalton,
    FirstFitDecreasing,
    FragmentationMinimisation,
    Hash,
    InPlace,
    ManyChoices,
    PostSort,
    Prompt,
    Shuffle,
    TimeBased,
    TwoChoices,
    WChoices,
)
_POLICIES: dict[str, type[Any]] = {kind.name: kind for kind in _KINDS}


def partitioner_names() -> list[str]:
    """Names of policies that go by keys; `Stream.partition_by` knows `osg` too, which goes by costs."""
    return sorted(_POLICIES)


def policy(named: str | Policy) -> Policy:
    """A policy from its name, with parameters behind a question mark; an object is given back as it is.

    >>> policy("prompt?residual_order=insertion")
    Prompt(residual_order='insertion', zigzag_start='restart')
    >>> policy("promt")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown partitioner 'promt': did you mean 'prompt'? There are: ...
    """
    if not isinstance(named, str):
        if isinstance(named, type) or not isinstance(named, Partitioner | TuplePolicy):
            raise OptionError(f"a partitioner is a name or an object with `plan` or `router`, got {named!r}")
        return named
    made: Policy = object_named("partitioner", named, _POLICIES)
    return made


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

"""Policies by name, with parameters: `"prompt"`, `"prompt?residual_order=insertion"`, `"dalton?epsilon=0.05"`.

A policy decides a batch at once (`Partitioner`) or row by row (`TuplePolicy`); each can stand in for the other.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from steelyard.core import OptionError, Partitioner, TuplePolicy
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

_TRUTH = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def partitioner_names() -> list[str]:
    """The names that `policy` and `partitioner` know."""
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
    name, _, query = named.partition("?")
    kind = _POLICIES.get(name)
    if kind is None:
        raise OptionError.unknown("partitioner", name, _POLICIES)
    made: Policy = kind(**_parameters(name, kind, query, named))
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


def _parameters(name: str, kind: type[Any], query: str, named: str) -> dict[str, Any]:
    kinds = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    given: dict[str, Any] = {}
    for parameter, text in parse_qsl(query, keep_blank_values=True):
        if parameter not in known:
            raise OptionError.unknown(f"parameter of {name}", parameter, known)
        if parameter in given:
            raise OptionError(f"parameter {parameter!r} of {name} is given twice in {named!r}: give it once")
        given[parameter] = _converted(f"parameter {parameter!r} of {name}", text, kinds[parameter])
    return given


def _converted(what: str, text: str, kind: Any) -> Any:
    """A parameter's text as the type that the policy declares; policies check ranges and words themselves."""
    if kind is bool:
        if text.lower() not in _TRUTH:
            raise OptionError(f"{what} must be true or false, got {text!r}")
        return _TRUTH[text.lower()]
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            raise OptionError(f"{what} must be a {'whole ' * (kind is int)}number, got {text!r}") from None
    return text

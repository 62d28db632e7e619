"""Workloads by name, with their parameters as a user writes them."""

from __future__ import annotations

from dataclasses import fields
from math import isfinite
from typing import Any, get_type_hints

from steelyard.core.errors import OptionError
from steelyard.workloads.cluster import Cluster
from steelyard.workloads.lineitem import LineItem
from steelyard.workloads.links import Links
from steelyard.workloads.logs import Logs
from steelyard.workloads.near_duplicates import NearDuplicates
from steelyard.workloads.nexmark import Nexmark
from steelyard.workloads.taxi import Taxi
from steelyard.workloads.tweets import Tweets
from steelyard.workloads.vectors import Vectors
from steelyard.workloads.vehicles import SpeedQueries, Vehicles
from steelyard.workloads.words import Words
from steelyard.workloads.workload import Workload
from steelyard.workloads.zipf import Zipf

WORKLOADS: dict[str, type[Workload]] = {
    kind.name: kind
    for kind in (
        Zipf,
        Words,
        Tweets,
        Taxi,
        Cluster,
        LineItem,
        Vectors,
        NearDuplicates,
        Nexmark,
        Links,
        Logs,
        Vehicles,
        SpeedQueries,
    )
}


def workload(name: str, **parameters: Any) -> Workload:
    """The workload of this name; numbers may be written as text.

    >>> workload("zipf", exponent=1.2, keys="10_000", seed=7)
    Zipf(exponent=1.2, keys=10000, drift_every=0.0, drift_unit='rows', seed=7)
    >>> workload("zipf", exponnet=1.2)
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown parameter of workload zipf 'exponnet': did you mean 'exponent'? ...
    """
    if name not in WORKLOADS:
        raise OptionError.unknown("workload", name, WORKLOADS)
    kind = WORKLOADS[name]
    types = parameter_types(name)
    given = {}
    for parameter, value in parameters.items():
        if parameter not in types:
            raise OptionError.unknown(f"parameter of workload {name}", parameter, types)
        given[parameter] = as_type(parameter, value, types[parameter])
    return kind(**given)


def parameter_types(name: str) -> dict[str, type]:
    """The parameters of a workload, and the type of each.

    >>> parameter_types("taxi")
    {'medallions': <class 'int'>, 'exponent': <class 'float'>, 'seed': <class 'int'>}
    """
    kind = WORKLOADS[name]
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}  # type: ignore[arg-type]


def as_type(option: str, value: Any, wanted: type) -> Any:
    """`value`, which may be text, as an int, float, bool or str; OptionError where it is none.

    >>> as_type("keys", "1e6", int), as_type("row_numbers", "true", bool)
    (1000000, True)
    """
    if wanted is str:
        return str(value)
    if wanted is bool:
        truth = {"true": True, "false": False}.get(str(value).strip().lower())
        if truth is None:
            raise OptionError(f"option {option!r} must be true or false, got {value!r}")
        return truth
    try:
        return _whole(str(value)) if wanted is int else _finite(str(value))
    except ValueError:
        kind = "a whole number" if wanted is int else "a number"
        raise OptionError(f"option {option!r} must be {kind}, got {value!r}") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = _finite(text)  # "1e6" is a whole number too
        if not number.is_integer():
            raise
        return int(number)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number

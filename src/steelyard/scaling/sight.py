"""Whether a look at a job can be decided by: what an instance or a number left unsaid.

Policies that go by rates and shares of time ask this before they do anything else. A look that lacks something leads to
no action, and the decision says what was missing: a metric that failed must never stop and restart a job. Whether the
clock jumped the controller sees (`core/clock.py`), for every policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import isfinite

from steelyard.core import Action, Observation, OperatorObservation
from steelyard.core.control import Work

LEAST_ROWS = 1e-6
"""Fewer rows than that are none."""
_SIGNED = frozenset({"lag_per_second"})
_NUMBERS = tuple(one.name for one in fields(Work) if one.name != "costs")
_OF_ALL = ("cpu", "queue")
"""What every instance of a look has where one of them has it: one without it has said nothing."""


def unsaid(seen: Observation, *needed: str) -> str:
    """What a look at operators lacks, in words; empty where it lacks nothing.

    Parameters
    ----------
    seen
        The look.
    needed
        Figures that every operator must have, of those that an engine may not know; what begins with `lag` or
        `arrived` must be known of sources.

    Examples
    --------
    >>> unsaid(Observation(15.0, 15.0, (OperatorObservation("map", 1, busy=float("nan")),)))
    'busy of map is no number'
    >>> log = OperatorObservation("log", 1, idle=1.0, arrived_per_second=50.0)
    >>> unsaid(Observation(15.0, 15.0, (log,)))
    'rows came to log, and it says that it did nothing'
    """
    if not seen.operators:
        return "no operator is to be seen"
    told = {name for name in _OF_ALL if any(getattr(each, name) is not None for each in _instances(seen.operators))}
    found = (_lacks(operator, needed, told) for operator in seen.operators)
    return next(filter(None, found), "")


def nothing(why: str) -> Action:
    """No action, since a look lacks something."""
    return Action(reason=f"nothing is done: {why}")


def _instances(operators: Iterable[OperatorObservation]) -> Iterable[Work]:
    return (each for one in operators for each in one.instances)


def _lacks(one: OperatorObservation, needed: Sequence[str], told: set[str]) -> str:
    if one.instances and len(one.instances) != one.parallelism:
        return f"{len(one.instances)} of {one.parallelism} instances of {one.name} say something"
    parts: list[tuple[str, Work]] = [(one.name, one), *((each.name, each) for each in one.instances)]
    for name, work in parts:
        if why := _no_numbers(name, work) or _silent(name, work, told if work is not one else set()):
            return why
    if not all(isfinite(rate) and rate >= 0 for rate in one.received_from.values()):
        return f"what comes to {one.name} is no number"
    for figure in needed:
        of_source = figure.startswith(("lag", "arrived"))
        if getattr(one, figure) is None and not (of_source and one.received_from):
            return f"{figure} of {one.name} is not known"
    came = sum(one.received_from.values()) + (one.arrived_per_second or 0.0)
    came += 0.0 if one.received_from else (one.lag or 0.0)
    if came > LEAST_ROWS and not one.processed_per_second and not one.backpressured:
        return f"rows came to {one.name}, and it says that it did nothing"
    return ""


def _no_numbers(name: str, work: Work) -> str:
    for figure in _NUMBERS:
        value = getattr(work, figure)
        if value is None:
            continue
        if not isfinite(value):
            return f"{figure} of {name} is no number"
        if value < 0 and figure not in _SIGNED:
            return f"{figure} of {name} is {value:g}, below 0"
    return ""


def _silent(name: str, work: Work, told: set[str]) -> str:
    """An instance whose shares of time are all 0 has not said how it spent it."""
    spent = work.busy + work.backpressured + work.idle
    if spent <= 0 or any(getattr(work, figure) is None for figure in told):
        return f"{name} says nothing"
    return ""

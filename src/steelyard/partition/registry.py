"""Partitioners by name, with parameters: `"prompt"`, `"prompt?residual_order=insertion"`."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import parse_qsl

from steelyard.core import OptionError, Partitioner
from steelyard.partition.hash import Hash
from steelyard.partition.prompt import Prompt
from steelyard.partition.shuffle import Shuffle
from steelyard.partition.time import TimeBased

_PARTITIONERS: dict[str, type[Any]] = {kind.name: kind for kind in (Hash, Shuffle, TimeBased, Prompt)}


def partitioner_names() -> list[str]:
    """The names that `partitioner` knows."""
    return sorted(_PARTITIONERS)


def partitioner(named: str | Partitioner) -> Partitioner:
    """A partitioner from its name, with parameters behind a question mark; an object is given back as it is.

    >>> partitioner("prompt?residual_order=insertion")
    Prompt(residual_order='insertion', zigzag_start='restart')
    >>> partitioner("promt")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown partitioner 'promt': did you mean 'prompt'? There are: ...
    """
    if not isinstance(named, str):
        if isinstance(named, type) or not isinstance(named, Partitioner):
            raise OptionError(f"a partitioner is a name or an object with `plan`, got {named!r}")
        return named
    name, _, query = named.partition("?")
    kind = _PARTITIONERS.get(name)
    if kind is None:
        raise OptionError.unknown("partitioner", name, _PARTITIONERS)
    known = [field.name for field in dataclasses.fields(kind)]
    given: dict[str, str] = {}
    for parameter, value in parse_qsl(query, keep_blank_values=True):
        if parameter not in known:
            raise OptionError.unknown(f"parameter of {name}", parameter, known)
        if parameter in given:
            raise OptionError(f"parameter {parameter!r} of {name} is given twice in {named!r}: give it once")
        given[parameter] = value
    made: Partitioner = kind(**given)
    return made

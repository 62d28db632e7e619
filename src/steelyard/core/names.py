"""Policies by name, with parameters behind a question mark: `"dalton?epsilon=0.05"`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints
from urllib.parse import parse_qsl, urlencode

from steelyard.core.errors import OptionError

_TRUTH = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def named(what: str, text: str, kinds: Mapping[str, type[Any]]) -> Any:
    """The object that a name and its parameters stand for.

    Parameters
    ----------
    what
        What it is, for errors: `"partitioner"`.
    text
        A name, and parameters as in an address: `"prompt?residual_order=insertion"`.
    kinds
        Classes by name; what they are made with are the parameters.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Tea:
    ...     minutes: int = 3
    >>> named("drink", "tea?minutes=5", {"tea": Tea})
    Tea(minutes=5)
    """
    name, _, query = text.partition("?")
    kind = kinds.get(name)
    if kind is None:
        raise OptionError.unknown(what, name, kinds)
    return kind(**_parameters(name, kind, query, text))


def with_parameters(text: str, parameters: Mapping[str, Any]) -> str:
    """A name with more parameters behind it.

    >>> with_parameters("dalton?cap=4", {"epsilon": 0.1, "sync": True})
    'dalton?cap=4&epsilon=0.1&sync=True'
    """
    return f"{text}{'&' if '?' in text else '?'}{urlencode(parameters)}" if parameters else text


def _parameters(name: str, kind: type[Any], query: str, text: str) -> dict[str, Any]:
    types = {**get_type_hints(kind), **({} if dataclasses.is_dataclass(kind) else get_type_hints(kind.__init__))}
    known = inspect.signature(kind).parameters
    given: dict[str, Any] = {}
    for parameter, value in parse_qsl(query, keep_blank_values=True):
        if parameter not in known:
            raise OptionError.unknown(f"parameter of {name}", parameter, known)
        if parameter in given:
            raise OptionError(f"parameter {parameter!r} of {name} is given twice in {text!r}: give it once")
        given[parameter] = _converted(f"parameter {parameter!r} of {name}", value, types[parameter])
    for parameter, one in known.items():
        if one.default is one.empty and parameter not in given:
            raise OptionError(f"{name} needs its parameter {parameter!r}, as in '{name}?{parameter}=...'")
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

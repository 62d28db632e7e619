"""Parameters of a policy as text, `epsilon=0.05&clock=elapsed`, turned into what the policy declares."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from steelyard.core.errors import OptionError

_TRUTH = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def parameters_of(name: str, kind: type[Any], query: str) -> dict[str, Any]:
    """The parameters in `query` for the dataclass `kind`, which is called `name`; OptionError for one it has not.

    >>> @dataclasses.dataclass
    ... class Coffee:
    ...     sugar: int = 0
    >>> parameters_of("coffee", Coffee, "sugar=2")
    {'sugar': 2}
    """
    kinds = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    given: dict[str, Any] = {}
    for parameter, text in parse_qsl(query, keep_blank_values=True):
        if parameter not in known:
            raise OptionError.unknown(f"parameter of {name}", parameter, known)
        if parameter in given:
            raise OptionError(
                f"parameter {parameter!r} of {name} is given twice in {name + '?' + query!r}: give it once"
            )
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

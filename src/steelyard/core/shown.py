"""How objects show themselves: a line or a few for a terminal, a small table for a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


class Shown:
    """Gives a `repr` from `str`, and HTML from `_facts`, for classes that have them.

    A dataclass that wants this `repr` says `repr=False`.
    """

    def _facts(self) -> Mapping[str, object]:
        """What a notebook shows, by name; what is empty is left out. Without any, it shows the text."""
        return {}

    def __repr__(self) -> str:
        text = str(self) if type(self).__str__ is not object.__str__ else _listed(self._facts())
        return text if "\n" in text else f"{type(self).__name__}({text})"

    def _repr_html_(self) -> str:
        facts = {name: value for name, value in self._facts().items() if value not in (None, "", (), [], {})}
        name = escape(type(self).__name__)
        if not facts:
            return f"<pre>{escape(repr(self))}</pre>"
        rows = "".join(
            f"<tr><th>{escape(fact)}</th><td>{escape(_text(value))}</td></tr>" for fact, value in facts.items()
        )
        return f'<table style="text-align:left"><caption><b>{name}</b></caption>{rows}</table>'


def _text(value: object) -> str:
    """A value in a few words.

    >>> _text(0.123456), _text(1234567), _text({"a": 1, "b": 2.0})
    ('0.1235', '1,234,567', 'a 1, b 2')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "block"), counted(0, "row")
    ('1 block', '0 rows')
    """
    return f"{number} {thing}{'s' * (number != 1)}"


def ordinal(number: int) -> str:
    """A place in an order.

    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 21)]
    ['1st', '2nd', '3rd', '4th', '11th', '21st']
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _listed(facts: Mapping[str, object]) -> str:
    return "; ".join(f"{name} {_text(value)}" for name, value in facts.items() if value not in (None, "", (), [], {}))

"""Durations as Spark users write them: `"10 seconds"`, `"1 minute 30 seconds"`, as whole microseconds."""

from __future__ import annotations

import re
import time

from steelyard.core.errors import OptionError
from steelyard.core.shown import counted

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*(\d+)\s*([a-zA-Z]+)")


def micros(text: str, option: str) -> int:
    """Microseconds of a duration; `option` is named where the text is not one.

    >>> micros("1 minute 30 seconds", "window"), micros("100 ms", "interval")
    (90000000, 100000)
    >>> micros("5 parsecs", "window")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: window: '5 parsecs' is not a duration: write for example '10 seconds', ...
    """
    total, end = 0, 0
    body = text.strip() if isinstance(text, str) else ""
    for part in _PART.finditer(body):
        unit = part.group(2).lower()
        unit = "millisecond" if unit == "ms" else unit.rstrip("s")
        if part.start() != end or unit not in _MICROS:
            break
        total += int(part.group(1)) * _MICROS[unit]
        end = part.end()
    if not body or end != len(body):
        raise OptionError(
            f"{option}: {text!r} is not a duration: write for example '10 seconds', with one of "
            f"{', '.join(_MICROS)} (months have no fixed length)"
        )
    return total


def spoken(amount: int) -> str:
    """A number of microseconds as Spark reads it.

    >>> spoken(90_000_000), spoken(1_000)
    ('90 seconds', '1 millisecond')
    """
    for unit in ("second", "millisecond", "microsecond"):
        if amount % _MICROS[unit] == 0:
            return counted(amount // _MICROS[unit], unit)
    raise AssertionError(amount)


def instant_text(micros: int) -> str:
    """An instant as reports show it.

    >>> instant_text(1_500_000)
    '1970-01-01T00:00:01.500Z'
    """
    seconds, rest = divmod(micros, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:03d}Z"

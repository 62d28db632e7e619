"""Errors that reach a user: each names the column or option that is wrong, and the remedy."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path


class SteelyardError(Exception):
    """Anything that Steelyard raises on purpose."""


class OptionError(SteelyardError, ValueError):
    """An option, a column or a policy's name that cannot be used as given."""

    @classmethod
    def unknown(cls, what: str, given: object, known: Iterable[str]) -> OptionError:
        """An error for a name that is not among the `known` ones, with the nearest of them.

        >>> print(OptionError.unknown("policy", "promt", ["hash", "prompt"]))
        unknown policy 'promt': did you mean 'prompt'? There are: hash, prompt
        """
        names = sorted(known)
        near = nearest(given, names)
        hint = f"did you mean {near!r}? " if near else ""
        return cls(f"unknown {what} {given!r}: {hint}There are: {', '.join(names) or 'none'}")


class StateError(SteelyardError):
    """Kept state that is damaged, missing or of another moment: going on from it could give a wrong answer."""


class BatchError(SteelyardError):
    """A batch that failed for a reason that is not Steelyard's own; the whole story is in the log.

    Parameters
    ----------
    told
        The sentence.
    error
        The error itself, as it was raised.
    """

    def __init__(self, told: str, error: Exception | None = None) -> None:
        super().__init__(told)
        self.error = error


class BadRowError(SteelyardError):
    """Rows that cannot be processed, in a query that was told to fail on them."""


def nearest(given: object, known: Iterable[str]) -> str | None:
    """The known name that a mistyped one was most likely meant to be, or None.

    >>> nearest("dely", ["column", "delay"]), nearest("fare", ["fare_amount", "tip_amount"])
    ('delay', 'fare_amount')
    """
    names, word = sorted(known), str(given)
    near = difflib.get_close_matches(word, names, n=1)
    begun = [name for name in names if word and name.startswith(word)]
    return near[0] if near else begun[0] if begun else None


def kind_of(given: object) -> str:
    """What a value is, in words, with the library that it is of.

    >>> kind_of(3), kind_of(OptionError("x"))
    ('an int', 'a steelyard.OptionError')
    """
    package, name = type(given).__module__.partition(".")[0], type(given).__name__
    said = name if package == "builtins" else f"{package}.{name}"
    return f"an {said}" if said[0] in "aeiou" else f"a {said}"


def place_of(error: BaseException) -> str:
    """File, line and name of the user's function that raised: the innermost that no library has, or nothing."""
    not_users = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), *_installed())
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith((*not_users, "<")) and not code.co_filename.endswith((".pxi", ".pyx")):
            found = f" ({Path(code.co_filename).name}:{line} in {code.co_name})"
    return found


def _installed() -> tuple[str, ...]:
    """Folders of installed packages; a user's own code may be one, but then its name is in the message already."""
    return sysconfig.get_path("purelib"), sysconfig.get_path("platlib")

"""How loops of many small functions over many arrays are compiled.

A function that gets a tuple of twenty arrays copies their descriptions at each call, and counts references to each of
them. In a loop whose steps take a tenth of a microsecond that is nearly all of the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Timer
from typing import Any, TypeVar

from numba import njit, typeof

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds: what was compiled before is loaded in less."""
_NO_REFERENCES: dict[str, Any] = {"_nrt": False}
"""Numba's name for leaving its memory management out; its type stubs do not list it."""

F = TypeVar("F", bound=Callable[..., Any])
_type_of: Callable[[Any], Any] = typeof


def inlined(function: F) -> F:
    """Compile a step of a loop: it becomes part of whoever calls it, makes no arrays, and counts no references."""
    made: F = njit(cache=True, forceinline=True, **_NO_REFERENCES)(function)
    return made


def loop(function: F) -> F:
    """Compile a loop over such steps; like them it makes no arrays."""
    made: F = njit(cache=True, **_NO_REFERENCES)(function)
    return made


def compiled(function: F, what: str, *arguments: Any) -> F:
    """A loop that is compiled for these arguments; where that takes long, the log says once what is going on."""
    dispatcher: Any = function
    if not dispatcher.signatures:
        note = Timer(PATIENCE, log.warning, ["compiling %s: half a minute, once for an installation", what])
        note.daemon = True
        note.start()
        try:
            dispatcher.compile(tuple(_type_of(argument) for argument in arguments))
        finally:
            note.cancel()
    return function

"""What a person is told unasked: what changes nothing, as a warning that can be filtered; why something takes long."""

from __future__ import annotations

import logging
import sys
import warnings
from threading import Event
from types import FrameType

_PACKAGE = __name__.partition(".")[0]
ROWS_STAY = "rows of built-in aggregates stay where they are read"
"""Why a partitioner may have nothing to decide in micro-batches."""


class NoEffectWarning(UserWarning):
    """A policy or an option that this program was given and that changes nothing in it.

    `warnings.simplefilter("ignore", steelyard.NoEffectWarning)` silences it, `"error"` makes it an exception.
    """


def tell_no_effect(what: str, why: str, remedy: str = "") -> None:
    """Warn, at the user's own line, that something has no effect. Engines call it when a query starts.

    Parameters
    ----------
    what
        As the user wrote it: `"partition_by('prompt')"`.
    why
        The reason, as a clause: `"there is one block"`.
    remedy
        What would give it an effect, as a clause; none where nothing would.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always", NoEffectWarning)
    ...     tell_no_effect("partition_by('prompt')", "there is one block", "give more than one")
    >>> print(told[0].message)
    partition_by('prompt') has no effect: there is one block; give more than one
    """
    said = f"{what} has no effect: {why}" + (f"; {remedy}" if remedy else "")
    at = _user_frame(sys._getframe(1))
    # Without a registry, a second query that is started at the same line is told too.
    warnings.warn_explicit(
        NoEffectWarning(said), None, at.f_code.co_filename, at.f_lineno, module=str(at.f_globals.get("__name__"))
    )


_told = Event()
"""Whether a person was told of waiting, or was not to be told; at most once for a process."""


def tell_waiting(log: logging.Logger, said: str, aloud: bool = True) -> None:
    """Log at INFO why something takes long; who sits at a terminal and has set up no logging reads it there, once.

    That is when `logging` itself prints warnings on standard error. Any handler on `steelyard` or above ends it:
    `logging.getLogger("steelyard").addHandler(logging.NullHandler())`.
    """
    log.info("%s", said)
    if aloud and not _told.is_set() and not log.hasHandlers() and sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"steelyard: {said}\n")
        sys.stderr.flush()
    _told.set()


def _user_frame(frame: FrameType) -> FrameType:
    """The nearest frame outside of this package; the outermost one where there is none."""
    while str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE and frame.f_back is not None:
        frame = frame.f_back
    return frame

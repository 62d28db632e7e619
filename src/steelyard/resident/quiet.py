"""Whether nothing is under way: counted twice, since counters of many workers are never read at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Counters: TypeAlias = Mapping[int, int]


class QuietCheck:
    """Decides from rounds of counters whether all channels are empty and all instances wait.

    A round has, from every worker, how many messages went into and were worked off in each channel. If in two
    rounds, one after the other, all that was sent is worked off and nothing was sent between them, nothing can be
    under way (Mattern 1987: one round alone may miss a message that overtakes the count).

    Examples
    --------
    >>> check = QuietCheck()
    >>> [check.round({0: sent}, {0: done}) for sent, done in [(3, 2), (3, 3), (3, 3)]]
    [False, False, True]
    """

    def __init__(self) -> None:
        self._before: dict[int, int] | None = None

    def round(self, sent: Counters, done: Counters) -> bool:
        """Whether all is quiet, by this round and the one before."""
        now = dict(sent)
        empty = now == dict(done)
        quiet = empty and now == self._before
        self._before = now if empty else None
        return quiet

"""Partial key grouping: each row to the less loaded of its key's candidate blocks.

M. A. U. Nasir, G. De Francisci Morales, D. Garcia-Soriano, N. Kourtellis, M. Serafini, The power of both choices,
ICDE 2015; with five candidates as in Abdelhamid 2021, section 2.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import Routed
from steelyard.core.counts import Ints
from steelyard.partition.d_choices import COUNTERS, HeadRouter
from steelyard.partition.simple_routers import SLIDE, WINDOW, ArrayRouter, require_at_least, require_window, slides_in


@dataclass(frozen=True)
class TwoChoices:
    """Of two candidate blocks the one with fewer rows in the window, the second where both are equal.

    A key stands in two blocks at most, so a key with more than 2 / blocks of the rows still makes stragglers.

    Parameters
    ----------
    window
        Rows of the last so many units of `times` count as load; 0 counts all rows since the router was made.
    slide
        The window moves in steps of so many units.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.full(6, 12), np.arange(6)
    >>> TwoChoices().router(8).route(*rows).block.tolist()
    [3, 4, 3, 4, 3, 4]
    """

    window: int = WINDOW
    slide: int = SLIDE

    name: ClassVar[str] = "pk2"
    paper: ClassVar[str] = "Nasir et al. 2015"

    def __post_init__(self) -> None:
        require_window(self.name, self.window, self.slide)

    def router(self, blocks: int, partitioner: int = 0) -> ArrayRouter:
        """A partitioner that counts its own rows; candidates are the same for all partitioners."""
        return LoadRouter(self.name, blocks, 2, self.window, self.slide)


@dataclass(frozen=True)
class ManyChoices:
    """The least loaded of several candidate blocks.

    Parameters
    ----------
    choices
        Candidates of a key, d in the papers; 1 is hashing, 2 is `TwoChoices`.
    head_only
        Only frequent keys have `choices` candidates, the others two, as in the work that this stands for
        (Nasir and others 2016); False, every key has them, as the dissertation on Prompt describes it.
    window, slide
        As of `TwoChoices`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.full(6, 12), np.arange(6)
    >>> sorted(set(ManyChoices().router(8).route(*rows).block.tolist()))
    [1, 3, 4, 6, 7]
    """

    choices: int = 5
    head_only: bool = False
    window: int = WINDOW
    slide: int = SLIDE

    name: ClassVar[str] = "pk5"
    paper: ClassVar[str] = "Nasir et al. 2015; Abdelhamid 2021, section 2.6"

    def __post_init__(self) -> None:
        require_at_least("choices", self.name, self.choices, 1, "a row needs a block to go to")
        require_window(self.name, self.window, self.slide)

    def router(self, blocks: int, partitioner: int = 0) -> ArrayRouter:
        """A partitioner that counts its own rows; candidates are the same for all partitioners."""
        if self.head_only:
            return HeadRouter(self.name, blocks, self.choices, self.window, self.slide, counters=COUNTERS)
        return LoadRouter(self.name, blocks, self.choices, self.window, self.slide)


class LoadRouter(ArrayRouter):
    """Least loaded of so many candidates, by loads in a sliding window."""

    def __init__(self, name: str, blocks: int, choices: int, window: int, slide: int) -> None:
        from steelyard.kernels.sliding import sliding_loads  # noqa: PLC0415 - tasks need no compiler

        super().__init__(name, blocks, {"loads": sliding_loads(blocks, slides_in(window, slide))})
        self._choices = choices
        self._slide = slide

    def _route(self, keys: Ints, times: Ints, routed: Routed) -> None:
        from steelyard.kernels.choices import route_many, route_two  # noqa: PLC0415 - tasks need no compiler

        loads = self._parts["loads"]
        if self._choices == 2:
            route_two(keys, times, routed.block, loads, self._slide)
        else:
            route_many(keys, times, routed.block, loads, self._slide, self._choices)
        routed.split[:] = self._choices > 1 and self.blocks > 1

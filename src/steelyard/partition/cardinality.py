"""CM: of two candidate blocks the one with fewer distinct keys.

Katsipoulakis, Labrinidis, Chrysanthis 2017, as Zapridou, Mytilinis, Ailamaki 2022 implement it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.partition.affinity import HoldersRouter
from steelyard.partition.simple_routers import SLIDE, WINDOW, ArrayRouter, require_window


@dataclass(frozen=True)
class Cardinality:
    """Of two candidates the one that holds fewer distinct keys in the window, the second where both are equal.

    Blocks come out with equal numbers of keys; how many rows a key has is not looked at.

    Parameters
    ----------
    window
        Keys of the last so many units of `times` count; 0 counts all since the router was made.
    slide
        The window moves in steps of so many units.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.full(4, 12), np.arange(4)
    >>> Cardinality().router(8).route(*rows).block.tolist()
    [3, 4, 3, 3]
    """

    window: int = WINDOW
    slide: int = SLIDE

    name: ClassVar[str] = "cm"
    paper: ClassVar[str] = "Katsipoulakis, Labrinidis, Chrysanthis 2017"

    def __post_init__(self) -> None:
        require_window(self.name, self.window, self.slide)

    def router(self, blocks: int, partitioner: int = 0) -> ArrayRouter:
        """A partitioner that knows its own rows; candidates are the same for all partitioners."""
        from steelyard.kernels.greedy import FEWEST_KEYS  # noqa: PLC0415 - tasks need no compiler

        return HoldersRouter(self.name, blocks, self.window, self.slide, choices=2, rule=FEWEST_KEYS)

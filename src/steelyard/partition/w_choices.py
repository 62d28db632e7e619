"""W-Choices: frequent keys may go to every block, the others to two.

Nasir, De Francisci Morales, Kourtellis, Serafini, ICDE 2016, as in `d_choices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.partition.d_choices import COUNTERS, HEAD_FACTOR, Estimate, HeadRouter, require_head
from steelyard.partition.simple_routers import SLIDE, WINDOW, ArrayRouter, require_window


@dataclass(frozen=True)
class WChoices:
    """A frequent key's row goes to the least loaded of all blocks, another's to the less loaded of two.

    Parameters
    ----------
    head_factor, counters, estimate
        Which keys are frequent, as of `DChoices`.
    window, slide
        Rows of the last `window` units of `times` count as load, in steps of `slide`; 0 counts all rows.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.full(5, 12), np.arange(5)
    >>> WChoices().router(4).route(*rows).block.tolist()
    [0, 1, 2, 3, 0]
    """

    head_factor: float = HEAD_FACTOR
    counters: int = COUNTERS
    estimate: Estimate = "upper"
    window: int = WINDOW
    slide: int = SLIDE

    name: ClassVar[str] = "w_choices"
    paper: ClassVar[str] = "Nasir et al. 2016"

    def __post_init__(self) -> None:
        require_head(self.name, self.head_factor, self.counters, self.estimate)
        require_window(self.name, self.window, self.slide)

    def router(self, blocks: int, partitioner: int = 0) -> ArrayRouter:
        """A partitioner that counts its own rows and keys; candidates are the same for all partitioners."""
        return HeadRouter(
            self.name,
            blocks,
            max(1, blocks),
            self.window,
            self.slide,
            counters=self.counters,
            head_factor=self.head_factor,
            estimate=self.estimate,
        )

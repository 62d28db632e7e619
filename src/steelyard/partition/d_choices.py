"""D-Choices: frequent keys have as many candidate blocks as it takes, the others two.

M. A. U. Nasir, G. De Francisci Morales, N. Kourtellis, M. Serafini, When two choices are not enough: balancing at
scale in distributed stream processing, ICDE 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from steelyard.core import OptionError, Routed
from steelyard.core.counts import Ints
from steelyard.partition.simple_routers import SLIDE, WINDOW, ArrayRouter, require_at_least, require_window, slides_in

COUNTERS = 100
"""Counters of the summary in the authors' simulator."""
HEAD_FACTOR = 5.0
"""A key is frequent above 1 / (5 n): the usual setting of 2 / (n T), with T = 10."""
TOLERANCE = 1e-3
"""How far from balance the inequalities may be, in the authors' simulator."""
REFRESH = 1_000
"""Rows between two computations of d; the paper does not say how often."""

Estimate = Literal["upper", "count", "lower"]
_SIGN_OF_ERROR: dict[str, int] = {"upper": 1, "count": 0, "lower": -1}


@dataclass(frozen=True)
class DChoices:
    """The least loaded of d candidates for a frequent key, of two for the others.

    Frequent keys are found with a SpaceSaving summary of all rows so far. d is the smallest number that two
    inequalities on the frequent keys' shares allow; from `blocks` on, every block is a candidate.

    Parameters
    ----------
    head_factor
        A key is frequent while its share is above `1 / (head_factor * blocks)`.
    counters
        Size of the summary. Its estimates may be `1 / counters` of the rows too high, so that with fewer than
        about `head_factor * blocks` counters rare keys of flat data look frequent.
    estimate
        What the share is taken from: `"upper"` is count plus error, as in the authors' simulator; `"count"` the
        count, which is never too low; `"lower"` count minus error, which is never too high.
    tolerance
        Slack of the inequalities.
    refresh
        Rows between two computations of d (more often among the first rows).
    window, slide
        Rows of the last `window` units of `times` count as load, in steps of `slide`; 0 counts all rows.

    Examples
    --------
    >>> rows = np.full(60, 12), np.arange(60)
    >>> np.bincount(DChoices().router(6).route(*rows).block).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    head_factor: float = HEAD_FACTOR
    counters: int = COUNTERS
    estimate: Estimate = "upper"
    tolerance: float = TOLERANCE
    refresh: int = REFRESH
    window: int = WINDOW
    slide: int = SLIDE

    name: ClassVar[str] = "d_choices"
    paper: ClassVar[str] = "Nasir et al. 2016"

    def __post_init__(self) -> None:
        require_head(self.name, self.head_factor, self.counters, self.estimate)
        require_at_least("tolerance", self.name, self.tolerance, 0, "it is how far from balance is good enough")
        require_at_least("refresh", self.name, self.refresh, 1, "1 computes the number of candidates for every row")
        require_window(self.name, self.window, self.slide)

    def router(self, blocks: int, partitioner: int = 0) -> ArrayRouter:
        """A partitioner that counts its own rows and keys; candidates are the same for all partitioners."""
        from steelyard.kernels.choices import BY_INEQUALITIES  # noqa: PLC0415 - tasks need no compiler

        return HeadRouter(
            self.name,
            blocks,
            BY_INEQUALITIES,
            self.window,
            self.slide,
            counters=self.counters,
            head_factor=self.head_factor,
            estimate=self.estimate,
            tolerance=self.tolerance,
            refresh=self.refresh,
        )


class HeadRouter(ArrayRouter):
    """Frequent keys have `choices` candidates, the others two."""

    def __init__(
        self,
        name: str,
        blocks: int,
        choices: int,
        window: int,
        slide: int,
        *,
        counters: int,
        head_factor: float = HEAD_FACTOR,
        estimate: Estimate = "upper",
        tolerance: float = TOLERANCE,
        refresh: int = REFRESH,
    ) -> None:
        from steelyard.kernels.choices import HeadChoices  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.sliding import sliding_loads  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.space_saving import summary  # noqa: PLC0415 - tasks need no compiler

        table, top = summary(counters)
        loads = sliding_loads(blocks, slides_in(window, slide))
        head = HeadChoices(np.zeros(2, np.int64))
        super().__init__(name, blocks, {"loads": loads, "table": table, "summary": top, "head": head})
        self._choices = choices
        self._slide = slide
        self._threshold = 1.0 / (head_factor * blocks)
        self._sign_of_error = _SIGN_OF_ERROR[estimate]
        self._tolerance = tolerance
        self._refresh = refresh

    def _route(self, keys: Ints, times: Ints, routed: Routed) -> None:
        from steelyard.kernels.choices import route_head  # noqa: PLC0415 - tasks need no compiler

        route_head(
            keys,
            times,
            routed.block,
            self._parts["loads"],
            self._slide,
            self._parts["table"],
            self._parts["summary"],
            self._parts["head"],
            self._choices,
            self._threshold,
            self._sign_of_error,
            self._tolerance,
            self._refresh,
        )
        routed.split[:] = self.blocks > 1


def require_head(policy: str, head_factor: float, counters: int, estimate: str) -> None:
    """Raise OptionError unless frequent keys can be told so."""
    if not head_factor > 0:
        raise OptionError(
            f"head_factor of {policy} must be above 0, got {head_factor}: frequent is above 1 / (it * blocks)"
        )
    require_at_least("counters", policy, counters, 1, "frequent keys need counters")
    if estimate not in get_args(Estimate):
        raise OptionError.unknown(f"estimate of {policy}", estimate, get_args(Estimate))

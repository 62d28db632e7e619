"""DAGreedy: hot keys to the block with the best mix of affinity and load, the others home.

A. Pacaci, M. T. Ozsu, Distribution-aware stream partitioning for distributed stream processing systems, BeyondMR
2018, as Zapridou, Mytilinis, Ailamaki 2022 implement it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import Routed
from steelyard.core.counts import Ints
from steelyard.partition.affinity import SLOTS
from steelyard.partition.simple_routers import SLIDE, WINDOW, ArrayRouter, require_window, slides_in


@dataclass(frozen=True)
class DAGreedy:
    """Cold keys are hashed; a hot key goes where `1/2 [block holds it] - 1/2 (load - mean) / mean` is largest.

    A key is hot when it had more rows in the current slide than `1 / (100 * blocks)` of the last slide's, until
    the end of the next slide. (With slides of up to `100 * blocks` rows that is every key.) In the first slide
    nothing is known and all is hashed. After slides without rows the last one that had any counts.

    A row is marked as split unless its key is cold and stands in its hash block alone, in the window up to this
    row. A key may turn hot later in the window: it is whole only if no row of it is marked.

    Parameters
    ----------
    window
        Load, and which blocks hold a key, are those of the last so many units of `times`; 0 never forgets.
    slide
        The window moves in steps of so many units; keys are counted by slides.

    Examples
    --------
    >>> import numpy as np
    >>> routed = DAGreedy(window=40, slide=4).router(4).route(np.full(8, 1), np.arange(8))
    >>> routed.block.tolist(), routed.split.tolist()
    ([1, 1, 1, 1, 0, 0, 2, 2], [False, False, False, False, True, True, True, True])
    """

    window: int = WINDOW
    slide: int = SLIDE

    name: ClassVar[str] = "dagreedy"
    paper: ClassVar[str] = "Pacaci, Ozsu 2018"

    def __post_init__(self) -> None:
        require_window(self.name, self.window, self.slide)

    def router(self, blocks: int, partitioner: int = 0) -> ArrayRouter:
        """A partitioner that knows its own rows."""
        return GreedyRouter(self.name, blocks, self.window, self.slide)


class GreedyRouter(ArrayRouter):
    """DAGreedy's loads, holders and counts."""

    def __init__(self, name: str, blocks: int, window: int, slide: int) -> None:
        from steelyard.kernels.greedy import no_hot_keys  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.key_table import key_table  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.sliding import no_holders, sliding_loads  # noqa: PLC0415 - tasks need no compiler

        parts = {
            "loads": sliding_loads(blocks, slides_in(window, slide)),
            "table": key_table(SLOTS),
            "holders": no_holders(blocks, SLOTS),
            "hot": no_hot_keys(SLOTS),
        }
        super().__init__(name, blocks, parts)
        self._slide = slide

    def _route(self, keys: Ints, times: Ints, routed: Routed) -> None:
        from steelyard.kernels.greedy import (  # noqa: PLC0415 - tasks need no compiler
            grown_hot_keys,
            make_room,
            route_greedily,
        )

        parts, row = self._parts, 0
        while True:
            row = route_greedily(
                keys,
                times,
                routed.block,
                routed.split,
                row,
                parts["loads"],
                self._slide,
                parts["table"],
                parts["holders"],
                parts["hot"],
            )
            if row == len(keys):
                break
            parts["table"], parts["holders"] = make_room(parts["table"], parts["holders"])
            parts["hot"] = grown_hot_keys(parts["hot"], len(parts["table"].ids))

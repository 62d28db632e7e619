"""cAM: candidates that already hold a key, or few keys, before those that hold few rows.

N. R. Katsipoulakis, A. Labrinidis, P. K. Chrysanthis, A holistic view of stream partitioning costs, PVLDB 10(11),
2017, as Zapridou, Mytilinis, Ailamaki 2022 (`affinity`) and Abdelhamid 2021 (`cardinality`) read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, get_args

from steelyard.core import OptionError, Routed
from steelyard.core.counts import Ints
from steelyard.partition.simple_routers import SLIDE, ArrayRouter, require_at_least, require_window, slides_in

Mode = Literal["affinity", "cardinality", "weighted"]
SLOTS = 1_024
"""Keys that a router has room for at first; it makes more."""


@dataclass(frozen=True)
class Affinity:
    """The best of several candidate blocks by what they hold.

    Parameters
    ----------
    mode
        `"affinity"`: the candidate that holds the key, else the one with the fewest rows; no key is split, so
        hot keys make stragglers. `"cardinality"`: the one with the fewest distinct keys, this one included, then
        rows. `"weighted"`: the least of `alpha * rows / mean rows + (1 - alpha) * [does not hold the key]`.
    choices
        Candidates of a key, d. The paper's protocol is to raise it until that no longer helps: `best_d`.
    alpha
        Weight of the load in `"weighted"`, 0 to 1.
    window, slide
        What blocks hold is what they received in the last `window` units of `times`, in steps of `slide`. 0, the
        default, never forgets: only then does `"affinity"` keep a key in one block for good (as the published
        code does, which never lets anything expire), at the cost of remembering every key.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([12, 12, 9, 12, 9]), np.arange(5)
    >>> Affinity().router(8).route(*rows).block.tolist()
    [3, 3, 4, 3, 4]
    """

    mode: Mode = "affinity"
    choices: int = 2
    alpha: float = 0.5
    window: int = 0
    slide: int = SLIDE

    name: ClassVar[str] = "cam"
    paper: ClassVar[str] = "Katsipoulakis, Labrinidis, Chrysanthis 2017"

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise OptionError.unknown(f"mode of {self.name}", self.mode, get_args(Mode))
        require_at_least("choices", self.name, self.choices, 1, "a row needs a block to go to")
        if not 0 <= self.alpha <= 1:
            raise OptionError(
                f"alpha of {self.name} must be between 0 and 1, got {self.alpha}: it is the load's weight"
            )
        require_window(self.name, self.window, self.slide)

    def router(self, blocks: int, partitioner: int = 0) -> ArrayRouter:
        """A partitioner that knows its own rows; candidates are the same for all partitioners."""
        from steelyard.kernels import greedy  # noqa: PLC0415 - tasks need no compiler

        rules = {"affinity": greedy.AFFINITY, "cardinality": greedy.CARDINALITY, "weighted": greedy.WEIGHTED}
        # A key that left the window may come back to another block, so with a window it can be in two.
        splits = self.choices > 1 and (self.mode != "affinity" or self.window > 0)
        return HoldersRouter(
            self.name,
            blocks,
            self.window,
            self.slide,
            choices=self.choices,
            rule=rules[self.mode],
            alpha=self.alpha,
            splits=splits,
        )


class HoldersRouter(ArrayRouter):
    """The best of so many candidates by a rule of `kernels.greedy.route_by_holders`."""

    def __init__(
        self,
        name: str,
        blocks: int,
        window: int,
        slide: int,
        *,
        choices: int,
        rule: int,
        alpha: float = 0.0,
        splits: bool = True,
    ) -> None:
        from steelyard.kernels.key_table import key_table  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.sliding import no_holders, sliding_loads  # noqa: PLC0415 - tasks need no compiler

        loads = sliding_loads(blocks, slides_in(window, slide))
        parts = {"loads": loads, "table": key_table(SLOTS), "holders": no_holders(blocks, SLOTS)}
        super().__init__(name, blocks, parts)
        self._slide = slide
        self._choices = choices
        self._rule = rule
        self._alpha = float(alpha)
        self._splits = splits and blocks > 1

    def _route(self, keys: Ints, times: Ints, routed: Routed) -> None:
        from steelyard.kernels.greedy import make_room, route_by_holders  # noqa: PLC0415 - tasks need no compiler

        parts, row = self._parts, 0
        while True:
            row = route_by_holders(
                keys,
                times,
                routed.block,
                row,
                parts["loads"],
                self._slide,
                parts["table"],
                parts["holders"],
                self._choices,
                self._rule,
                self._alpha,
            )
            if row == len(keys):
                break
            parts["table"], parts["holders"] = make_room(parts["table"], parts["holders"])
        routed.split[:] = self._splits


class BestChoices(NamedTuple):
    """What `best_d` found."""

    policy: Affinity
    """The policy with the best number of candidates."""
    costs: dict[int, float]
    """What each number that was tried costs."""


def best_d(
    policy: Affinity,
    blocks: int,
    keys: Ints,
    times: Ints,
    cost: Callable[[Routed], float],
    most: int | None = None,
) -> BestChoices:
    """Raise the number of candidates, from two, until the cost of the routing no longer falls.

    Parameters
    ----------
    policy
        Where to start from; its `choices` are replaced.
    blocks, keys, times
        The workload.
    cost
        What is to become small: of the blocks of all rows, a number.
    most
        The largest number to try; as many as there are blocks unless given.

    Examples
    --------
    >>> import numpy as np
    >>> keys = np.repeat(np.arange(8), 2 ** np.arange(8))
    >>> largest = lambda routed: np.bincount(routed.block).max()
    >>> found = best_d(Affinity("weighted"), 8, keys, np.arange(255), largest)
    >>> found.policy.choices, found.costs
    (5, {2: 129.0, 3: 68.0, 4: 54.0, 5: 42.0, 6: 47.0})
    """
    limit = max(2, blocks if most is None else most)
    costs: dict[int, float] = {}
    best = 2
    for choices in range(2, limit + 1):
        costs[choices] = float(cost(replace(policy, choices=choices).router(blocks).route(keys, times)))
        if choices > 2 and not costs[choices] < costs[best]:
            break
        best = choices
    return BestChoices(replace(policy, choices=best), costs)

"""Storm's shuffle grouping: round robin over the instances in a random order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.osg import require_whole
from steelyard.grouping.rules import rule_of

if TYPE_CHECKING:
    from steelyard.kernels.osg_state import Rule


@dataclass(frozen=True)
class StormShuffle(CompiledGrouping):
    """Round robin over a random permutation: the rival ASSG of the prototype's figures (Rivetti et al. 2016, 5.3).

    The paper does not say how Storm shuffles. Versions of that time went through a permutation and drew another when
    it was used up; later ones keep the first.

    Parameters
    ----------
    reshuffle
        Whether every round has a permutation of its own.
    seed
        Of the permutations.

    Examples
    --------
    >>> import numpy as np
    >>> to = StormShuffle(seed=1).scheduler(4).choose(np.zeros(8, np.int64)).to
    >>> sorted(to[:4].tolist()), sorted(to[4:].tolist())
    ([0, 1, 2, 3], [0, 1, 2, 3])
    """

    reshuffle: bool = True
    seed: int = 3

    name: ClassVar[str] = "assg"

    def __post_init__(self) -> None:
        require_whole(self.name, 1, self.seed)

    def rule(self, instances: int) -> Rule:
        """The parameters as compiled loops take them."""
        from steelyard.kernels.osg_state import SHUFFLED  # noqa: PLC0415 - slow to import

        return rule_of(SHUFFLED, instances, reshuffle=self.reshuffle, seed=self.seed)

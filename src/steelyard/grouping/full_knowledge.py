"""Full Knowledge: the greedy scheduler with the exact cost of every tuple, which nobody has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.rules import rule_of

if TYPE_CHECKING:
    from steelyard.kernels.osg_state import Rule


@dataclass(frozen=True)
class FullKnowledge(CompiledGrouping):
    """Each tuple to the instance that has been given the least work so far, in exact times (Rivetti et al. 2016, 5.1).

    As in the paper, work that was done long ago counts as much as work that waits. With `idle_aware`, an instance that
    is idle is not ahead of another that is idle too.

    Parameters
    ----------
    idle_aware
        Whether no instance is thought to end before now; `choose` then needs `times`.

    Examples
    --------
    A long tuple, then a short one, then a long one on two instances (section 2 of the paper):

    >>> import numpy as np
    >>> FullKnowledge().scheduler(2).choose(np.array([0, 1, 0]), costs=np.array([10.0, 1.0, 10.0])).to.tolist()
    [0, 1, 1]
    """

    idle_aware: bool = False

    name: ClassVar[str] = "full_knowledge"
    paper: ClassVar[str] = "Rivetti et al. 2016, section 4"
    needs_costs: ClassVar[bool] = True

    def rule(self, instances: int) -> Rule:
        """The parameters as compiled loops take them."""
        from steelyard.kernels.osg_state import KNOWN  # noqa: PLC0415 - slow to import

        return rule_of(KNOWN, instances, idle_aware=self.idle_aware)

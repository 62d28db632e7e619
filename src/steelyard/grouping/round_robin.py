"""Round robin: every instance gets as many tuples as the others, whatever they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.rules import rule_of

if TYPE_CHECKING:
    from steelyard.kernels.osg_state import Rule


@dataclass(frozen=True)
class RoundRobin(CompiledGrouping):
    """Tuple j goes to instance `j mod k`: what shuffle grouping usually is.

    A scheduler with another number begins with another instance. One that was given weights (`weigh`) deals tuples out
    in proportion to them instead, by smooth weighted round robin.

    Examples
    --------
    >>> import numpy as np
    >>> RoundRobin().scheduler(2).choose(np.zeros(3, np.int64)).to.tolist()
    [0, 1, 0]
    >>> scheduler = RoundRobin().scheduler(2)
    >>> scheduler.weigh((3, 1))
    >>> scheduler.choose(np.zeros(8, np.int64)).to.tolist()
    [0, 0, 1, 0, 0, 0, 1, 0]
    """

    name: ClassVar[str] = "round_robin"
    weighs: ClassVar[bool] = True

    def rule(self, instances: int) -> Rule:
        """The parameters as compiled loops take them."""
        from steelyard.kernels.osg_state import IN_TURN  # noqa: PLC0415 - slow to import

        return rule_of(IN_TURN, instances)

"""No elasticity: the numbers of tasks stay what the last batch had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import Observation, ScalingDecision


@dataclass(frozen=True)
class Fixed:
    """Keep the numbers of blocks and buckets.

    Examples
    --------
    >>> Fixed().decide(Observation(0, 10, 3, 8, 4, 0.5, 1.0))
    ScalingDecision(blocks=8, buckets=4, reason='')
    """

    name: ClassVar[str] = "fixed"

    def decide(self, observation: Observation) -> ScalingDecision:
        """The same numbers again."""
        return ScalingDecision(observation.blocks, observation.buckets)

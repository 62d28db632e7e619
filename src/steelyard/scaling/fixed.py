"""No elasticity: all numbers of tasks and instances stay what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import Action, Observation


@dataclass(frozen=True)
class Fixed:
    """Keep the numbers of tasks and instances.

    Examples
    --------
    >>> Fixed().decide(Observation(0.0, 1.0)).is_nothing
    True
    """

    name: ClassVar[str] = "fixed"

    def decide(self, observation: Observation) -> Action:
        """Nothing."""
        return Action()

"""Learning curves: what a learner was rewarded with, step by step. Pictures of them are drawn by benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats


@dataclass(frozen=True, eq=False)
class Curve:
    """One figure per step.

    Parameters
    ----------
    name
        Whose it is.
    values
        float64[steps].

    Examples
    --------
    >>> curve = Curve("dqn", np.array([-4.0, -2.0, -3.0]))
    >>> curve.normalised().values.tolist(), curve.last(2)
    ([0.0, 1.0, 0.5], -2.5)
    """

    name: str
    values: Floats

    def __post_init__(self) -> None:
        if not len(self.values) or not np.isfinite(self.values).all():
            raise OptionError(f"the learning curve of {self.name!r} is empty or not finite")

    def normalised(self, low: float | None = None, high: float | None = None) -> Curve:
        """From 0 for the lowest to 1 for the highest; other bounds where several curves are compared."""
        low = float(self.values.min()) if low is None else low
        high = float(self.values.max()) if high is None else high
        span = high - low
        return Curve(self.name, (self.values - low) / span if span > 0 else np.zeros_like(self.values))

    def last(self, steps: int) -> float:
        """Mean over the last steps, or over all where there are fewer."""
        return float(self.values[-steps:].mean())

"""Numbers of threads and their machines at once, for several applications, learnt without a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from steelyard.core.errors import OptionError
from steelyard.core.placing import Setup
from steelyard.placement.acting import Acting
from steelyard.placement.actions import Actions, Counts
from steelyard.placement.actor_critic import ActingPlacement


@dataclass
class Extra(ActingPlacement):
    """Choose how many threads each component has on each machine, for all applications of a cluster together.

    An action is a matrix of whole numbers, with from 1 to C_i threads of component i in all; the reward is the sum of
    the applications' tuple times. An actor wishes for a matrix of real numbers, the nearest allowed ones are found
    exactly, and a critic takes the best of them. Threads of a component are alike, so that the matrix is far smaller
    than one of threads and machines, and of two placements that are the same but for names there is one.

    Parameters
    ----------
    file, samples, sampling, most_load, reward_clip, nearest, gamma, pretraining, epochs, explore, invert
        As of `actor_critic`.
    episodes
        Each explores anew, and begins with threads dealt in turn.
    weights
        Of the applications in the reward, as in `"1,1,2"`; empty, all the same.
    fixed
        Whether numbers of threads stay what they were at the start, and only machines are chosen: what of the gain is
        not due to numbers.

    Examples
    --------
    >>> Extra(weights="1,2").application_weights()
    (1.0, 2.0)
    """

    episodes: int = 1
    weights: str = ""
    fixed: bool = False

    name: ClassVar[str] = "extra"
    paper: ClassVar[str] = "Li 2018, chapter 4"

    def __post_init__(self) -> None:
        self.application_weights()
        super().__post_init__()

    @property
    def vary(self) -> bool:  # type: ignore[override]
        """Whether samples have other numbers of threads."""
        return not self.fixed

    def actions(self, setup: Setup) -> Actions:
        """Counts of threads."""
        return Counts(setup, self.fixed)

    def learning(self) -> Acting:
        """With episodes."""
        return replace(super().learning(), episodes=self.episodes)

    def application_weights(self) -> tuple[float, ...]:
        """As numbers."""
        try:
            return tuple(float(one) for one in self.weights.split(",") if one.strip())
        except ValueError:
            raise OptionError(
                f"weights are numbers with commas between them, as in '1,1,2', got {self.weights!r}"
            ) from None

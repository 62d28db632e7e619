"""An actor that wishes for a placement, and a critic that chooses among the allowed ones near the wish."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.measured import Measured, settled
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.learning import Network, Trained
from steelyard.placement.acting import Acting, taught
from steelyard.placement.actions import Actions, Assignments
from steelyard.placement.trained import LearntPlacement, followed

AHEAD = 20
"""Epochs that a trained policy goes on in its head."""


@dataclass
class ActingPlacement(LearntPlacement):
    """What policies with an actor and a critic share."""

    nearest: int = 10
    gamma: float = 0.99
    pretraining: int = 5000
    epochs: int = 1500
    explore: str = "prob"
    invert: bool = True
    actor: Network | None = field(default=None, init=False, repr=False, compare=False)
    critic: Network | None = field(default=None, init=False, repr=False, compare=False)

    vary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.learning()  # which says what cannot be
        super().__post_init__()

    def actions(self, setup: Setup) -> Actions:
        """What it chooses from."""
        return Assignments(setup)

    def learning(self) -> Acting:
        """How it learns."""
        return Acting(
            nearest=self.nearest,
            gamma=self.gamma,
            pretraining=self.pretraining,
            epochs=self.epochs,
            explore=self.explore,
            invert=self.invert,
        )

    def application_weights(self) -> tuple[float, ...]:
        """Of the applications' times in the reward; none: all the same."""
        return ()

    def train(self, cluster: Measured, seed: int) -> None:
        """First from random placements, then by trying."""
        options, setup = self.learning(), cluster.setup
        actions = self.actions(setup)
        reward = self._reward(cluster, self.application_weights())
        tried = self._experience(cluster, seed, vary=self.vary)
        offline = {
            "before": actions.of(tried.before),
            "after": actions.of(tried.after),
            "load": tried.load,
            "reward": reward.of(tried.times),
        }
        ones = np.ones(len(setup.applications))

        def begin() -> tuple[Ints, Floats]:
            start = setup.round_robin()
            cluster.deploy(start)
            return actions.of(start[None])[0], ones

        def attempt(chosen: Ints) -> float:
            return float(reward.of(settled(cluster, actions.assignment(chosen, cluster.assignment)).times))

        found = taught(actions, offline, attempt, begin, options, seed)
        arrays = found.actor.arrays("actor") | found.critic.arrays("critic")
        self.use(self._kept(cluster, seed, arrays, found.rewards, {"reference_seconds": reward.reference}))

    def use(self, trained: Trained) -> None:
        """Networks of its file."""
        self.actor = Network.from_arrays("actor", trained.arrays)
        self.critic = Network.from_arrays("critic", trained.arrays)
        self.trained = trained

    def wanted(self, setup: Setup, present: Ints, load: Floats) -> Ints:
        """Go on in its head until it would stay, and take what the critic values most of what it came to."""
        actions = self.actions(setup)
        first = actions.of(present[None])[0]
        way = followed(first, lambda placed: self._next(actions, placed, load), AHEAD)[1:]
        if not way:
            return present
        best = int(np.argmax(self._values(actions, first, load, np.array(way))))
        return actions.assignment(way[best], present)

    def _next(self, actions: Actions, placed: Ints, load: Floats) -> Ints:
        if self.actor is None:
            raise AssertionError("used before it was trained")
        state = np.concatenate([actions.vectors(placed), load]).astype(np.float32)
        near = actions.nearest(self.actor(state)[None], self.nearest)[0]
        found: Ints = near[int(np.argmax(self._values(actions, placed, load, near)))]
        return found

    def _values(self, actions: Actions, placed: Ints, load: Floats, near: Ints) -> Floats:
        if self.critic is None:
            raise AssertionError("used before it was trained")
        acted = actions.vectors(near)
        state = np.concatenate([actions.vectors(placed), load]).astype(np.float32)
        states = np.broadcast_to(state, (len(acted), len(state)))
        return np.asarray(self.critic(np.concatenate([states, acted], axis=1))[:, 0], dtype=float)


@dataclass
class ActorCritic(ActingPlacement):
    """Learn where threads run without a model: an actor wishes, a critic chooses among the nearest placements.

    The state is the present placement and the arrival rates, the action the next placement, the reward how much less
    time tuples take than with threads dealt in turn. The actor gives a matrix of real numbers; the K placements that
    are nearest to it are found exactly, and the critic takes the best of them. It learns from 10,000 random placements,
    then from 1,500 that it chooses itself.

    Where the paper says nothing, this was chosen: K = 10; Adam with 0.0003 for the actor and 0.001 for the critic;
    linear last layers; epsilon from 1 to 0.02 over 60 % of the epochs; rewards as above, cut at twice the default's
    time; 5,000 steps on random placements. Where what it says did not lead to good placements, the literal reading is
    an option: `sampling="literal"`, `invert=False`.

    Parameters
    ----------
    file, samples, sampling, most_load, reward_clip
        A trained one; placements tried beforehand, how they are drawn, with up to how many times the present arrival
        rates; and where times are cut, in default's times.
    nearest
        K.
    gamma
        Discount.
    pretraining, epochs
        Steps on random placements, and placements that are tried afterwards.
    explore
        Epsilon as a probability (`"prob"`) or as a scale (`"scale"`) of the noise.
    invert
        Whether gradients fade where they push the wish out of its bounds.

    Examples
    --------
    >>> ActorCritic(nearest=32).learning().gamma
    0.99
    """

    name: ClassVar[str] = "actor_critic"
    paper: ClassVar[str] = "Li 2018, chapter 3"
